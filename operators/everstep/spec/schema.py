"""JSON schemas of the two kinds of file, for editors and for the form of a DAG."""

from __future__ import annotations

from typing import Any

from everstep.spec.cluster import ClusterSpec
from everstep.spec.parsing import Strict
from everstep.spec.training import TrainingSpec

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """Return the schema of `dags/runs/*.yaml`."""
    return _schema(TrainingSpec, "Everstep run file")


def cluster_schema() -> dict[str, Any]:
    """Return the schema of `dags/clusters/*.yaml`."""
    return _schema(ClusterSpec, "Everstep cluster file")


def _schema(model: type[Strict], title: str) -> dict[str, Any]:
    return {"$schema": _DIALECT, **model.model_json_schema(), "title": title}
