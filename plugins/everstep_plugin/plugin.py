"""The Airflow plugin: found by its entry point where the wheel is installed, and by ``plugins/everstep.py`` elsewhere.

It registers the links that the operators carry. Airflow runs this file at the start of every process, so it imports
nothing heavy.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from everstep.links import CheckpointsLink, JobSetLink


class EverstepPlugin(AirflowPlugin):
    """Everstep's part of the Airflow UI."""

    name = "everstep"
    operator_extra_links = [JobSetLink(), CheckpointsLink()]  # noqa: RUF012 - Airflow's own attribute
