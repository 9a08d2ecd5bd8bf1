"""Upgrades a cluster whose runs train: saves and suspends each run, renews the checkpoint drivers, resumes each run.

The upgrade itself changes neither runs nor drivers; but drivers of the new version come only with configurations that
are made anew, which wipes the RAM disks. Mode `check` says what would happen and what would be lost.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain

from everstep.provision.cluster_operators import UpgradeClusterOperator
from everstep.provision.form import GKE_VERSION, cluster_fields
from everstep.provision.in_cluster_operators import FinishUpgradeOperator, PrepareUpgradeOperator
from everstep.provision.summary import ProvisioningSummaryOperator

# Stands on what is renewed in this upgrade, so that it can be killed anywhere and triggered again.
NAME = "{{ params.version }}"

with DAG(
    "upgrade_cluster",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    # A lost worker costs nothing: the next try goes on where things stand. A service that refuses gets more time.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10), "retry_exponential_backoff": True},
    tags=["everstep"],
    doc_md=__doc__,
    params={
        **cluster_fields(Path(__file__).parent),
        "version": Param(
            "",
            type="string",
            pattern=GKE_VERSION,
            title="GKE version",
            description="That the cluster shall have, such as 1.34.1-gke.1829001.",
        ),
        "unsaved": Param(
            False,
            type="boolean",
            title="Suspend runs that can't be asked for a save",
            description="What they have trained since their last backup or durable save is lost.",
        ),
    },
) as dag:
    what: dict[str, Any] = {"cluster": "{{ params.cluster }}", "mode": "{{ params.mode }}"}
    prepare = PrepareUpgradeOperator(
        task_id="prepare", **what, upgrade=NAME, version="{{ params.version }}", unsaved="{{ params.unsaved }}"
    )
    upgrade = UpgradeClusterOperator(task_id="upgrade", version="{{ params.version }}", **what)
    finish = FinishUpgradeOperator(task_id="finish", **what, upgrade=NAME)
    summary = ProvisioningSummaryOperator(task_id="summary", reports=[prepare.output, upgrade.output, finish.output])
    chain(prepare, upgrade, finish, summary)
