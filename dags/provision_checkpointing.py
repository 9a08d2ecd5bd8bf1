"""Prepares a project for multi-tier checkpointing, as a cluster file below dags/clusters describes it.

Mode `check` only looks, `emit` also logs the commands and Terraform that would do it, `apply` does it. Every task looks
before it changes anything: triggering it again changes nothing, and a task that was killed goes on where things stand.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain

from everstep.provision.cluster_operators import (
    EnsureApisOperator,
    EnsureBucketAccessOperator,
    EnsureBucketOperator,
    EnsureClusterOperator,
    EnsureNodePoolsOperator,
)
from everstep.provision.form import GKE_VERSION, cluster_fields
from everstep.provision.in_cluster_operators import (
    EnsureCheckpointingOperator,
    EnsureJobSetOperator,
    EnsurePriorityClassesOperator,
)
from everstep.provision.summary import ProvisioningSummaryOperator

# Fields of the form that win over the cluster file; empty ones change nothing.
OVERRIDES = """{{ {
  "gke.version": params.version or none,
  "gke.system_nodes.machine_type": params.system_machine_type or none,
  "gke.system_nodes.count": params.system_nodes or none
} | tojson }}"""

with DAG(
    "provision_checkpointing",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    # A lost worker costs nothing: the next try goes on where things stand. A service that refuses gets more time.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10), "retry_exponential_backoff": True},
    tags=["everstep"],
    doc_md=__doc__,
    params={
        **cluster_fields(Path(__file__).parent),
        "version": Param(None, type=["string", "null"], pattern=GKE_VERSION, title="GKE version of a new cluster"),
        "system_machine_type": Param(
            None,
            type=["string", "null"],
            pattern=r"^[a-z][0-9a-z]*(-[0-9a-z]+)+$",
            title="Machine type of a new cluster's system nodes",
        ),
        "system_nodes": Param(None, type=["integer", "null"], minimum=1, title="System nodes in each zone"),
        "recreate": Param(
            False,
            type="boolean",
            title="Recreate checkpoint configurations that differ",
            description="Wipes the RAM disks of their nodes; refused while a JobSet uses them.",
        ),
        "force": Param(False, type="boolean", title="Recreate even while somebody uses them"),
    },
) as dag:
    what: dict[str, Any] = {
        "cluster": "{{ params.cluster }}",
        "mode": "{{ params.mode }}",
        "overrides": OVERRIDES,
    }
    apis = EnsureApisOperator(task_id="apis", **what)
    # Before the cluster: a bucket that is refused has cost nothing yet.
    buckets = EnsureBucketOperator(task_id="buckets", **what)
    cluster = EnsureClusterOperator(task_id="cluster", **what)
    node_pools = EnsureNodePoolsOperator(task_id="node_pools", force="{{ params.force }}", **what)
    bucket_access = EnsureBucketAccessOperator(task_id="bucket_access", **what)
    jobset = EnsureJobSetOperator(task_id="jobset", **what)
    priority_classes = EnsurePriorityClassesOperator(task_id="priority_classes", **what)
    checkpointing = EnsureCheckpointingOperator(
        task_id="checkpointing", recreate="{{ params.recreate }}", force="{{ params.force }}", **what
    )
    tasks = [apis, buckets, cluster, node_pools, bucket_access, jobset, priority_classes, checkpointing]
    summary = ProvisioningSummaryOperator(task_id="summary", reports=[task.output for task in tasks])
    # One after the other: GKE takes one change of a cluster at a time, and a later step's look needs the earlier ones.
    chain(*tasks, summary)
