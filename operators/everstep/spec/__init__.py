"""Run files and cluster files: models, checks, names. Pure: knows neither Airflow nor a cloud client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.spec.cluster import ClusterSpec
    from everstep.spec.findings import Finding, FindingsError, Severity
    from everstep.spec.training import TrainingSpec

__all__ = ["ClusterSpec", "Finding", "FindingsError", "Severity", "TrainingSpec"]
# Building the models costs most of what a DAG file may cost, and most DAG files only name a run file.
_HOMES = {
    "ClusterSpec": "everstep.spec.cluster",
    "Finding": "everstep.spec.findings",
    "FindingsError": "everstep.spec.findings",
    "Severity": "everstep.spec.findings",
    "TrainingSpec": "everstep.spec.training",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
