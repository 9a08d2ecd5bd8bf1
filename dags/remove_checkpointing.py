"""Takes multi-tier checkpointing off a cluster: its configurations, drivers and RAM disks. Buckets are left alone.

Refused while a JobSet uses a driver, unless forced: what has neither backup nor durable save would be lost.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain

from everstep.provision.form import cluster_fields
from everstep.provision.in_cluster_operators import RemoveCheckpointingOperator
from everstep.provision.summary import ProvisioningSummaryOperator

with DAG(
    "remove_checkpointing",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    # A lost worker costs nothing: the next try goes on where things stand. A service that refuses gets more time.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10), "retry_exponential_backoff": True},
    tags=["everstep"],
    doc_md=__doc__,
    params={
        **cluster_fields(Path(__file__).parent),
        "force": Param(False, type="boolean", title="Remove it even while a JobSet uses it"),
    },
) as dag:
    what: dict[str, Any] = {"cluster": "{{ params.cluster }}", "mode": "{{ params.mode }}"}
    remove = RemoveCheckpointingOperator(task_id="remove", force="{{ params.force }}", **what)
    summary = ProvisioningSummaryOperator(task_id="summary", reports=[remove.output])
    chain(remove, summary)
