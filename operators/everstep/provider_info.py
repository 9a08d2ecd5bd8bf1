"""What Airflow's provider manager is told of this distribution (entry point ``apache_airflow_provider``)."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Name and description, in the shape of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "everstep",
        "name": "Everstep",
        "description": "Keeps large training jobs on GKE stepping forward.",
    }
