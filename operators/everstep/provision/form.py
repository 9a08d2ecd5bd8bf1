"""Fields that the forms of all DAGs for cluster files have."""

from __future__ import annotations

from pathlib import Path

from airflow.providers.common.compat.sdk import Param

GKE_VERSION = r"^[0-9]+\.[0-9]+\.[0-9]+-gke\.[0-9]+$"
"""Pattern of a whole version, such as 1.34.1-gke.1829001."""


def cluster_fields(dags_folder: Path) -> dict[str, Param]:
    """Return the fields `cluster`, one of the files in `clusters/` of a folder of DAGs, and `mode`."""
    clusters = sorted(path.relative_to(dags_folder).as_posix() for path in (dags_folder / "clusters").glob("*.yaml"))
    return {
        "cluster": Param(
            clusters[0] if clusters else None,
            type="string",
            enum=clusters,
            title="Cluster",
            description="A cluster file below dags/clusters.",
        ),
        "mode": Param(
            "check",
            type="string",
            enum=["check", "emit", "apply"],
            title="Mode",
            description="Look only, also log commands and Terraform, or do it.",
        ),
    }
