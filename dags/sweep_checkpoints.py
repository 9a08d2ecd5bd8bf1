"""Sweeps old checkpoints every night: of all runs in the buckets of the cluster files, each by its own retention.

Each run is planned by itself, so that a refusal stops that run alone. By default nothing is removed: set `apply` in the
form, or below for the schedule. With `approve`, a person is shown what each plan would remove and approves it first
(Airflow 3.1 and later). What was swept can be had back for the run's `retention.trash_hours`; the sweep after that
empties the trash.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task_group

from everstep.retain.approval import ApprovePlanOperator
from everstep.retain.find_runs import FindRunsOperator
from everstep.retain.operator import PlanRetentionOperator, SweepOperator

HERE = Path(__file__).parent
CLUSTERS = sorted(path.relative_to(HERE).as_posix() for path in (HERE / "clusters").glob("*.yaml"))
# What the schedule does; the form can ask for something else.
APPLY = False
APPROVE = False

with DAG(
    "sweep_checkpoints",
    schedule="17 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    # A sweep that was killed goes on where it stopped.
    default_args={"retries": 3, "retry_delay": timedelta(minutes=10)},
    tags=["everstep"],
    doc_md=__doc__,
    params={
        "apply": Param(APPLY, type="boolean", title="Apply", description="Otherwise only say what would go."),
        "approve": Param(
            APPROVE,
            type="boolean",
            title="Ask a person first",
            description="Each run's plan waits for an answer under Required Actions; needs Airflow 3.1.",
        ),
        "answer_within_hours": Param(
            20, type="number", exclusiveMinimum=0, title="Hours to answer in", description="Then nothing is swept."
        ),
        "runs": Param(None, type=["string", "null"], title="Only these runs", description="Names, joined by commas."),
        "retention": Param(
            {},
            type=["object", "null"],
            title="Retention of runs without a run file",
            description='As in run files, such as {"hourly": 24, "keep_last": 3}; the defaults without it.',
        ),
        "beside_training": Param(
            True,
            type="boolean",
            title="Also runs that train now",
            description="What their replicator would restore stays in any case.",
        ),
        "empty_now": Param(False, type="boolean", title="Empty the trash at once: nothing can be had back"),
    },
) as dag:

    @task_group
    def retention(run: str, cluster: str, retention: dict[str, Any]) -> None:
        """Plan one run; ask, where that is wished; sweep."""
        plan = PlanRetentionOperator(task_id="plan", run=run, cluster=cluster, retention=retention)
        approved = ApprovePlanOperator(
            task_id="approve",
            plan=plan.output,
            wanted="{{ params.apply and params.approve }}",
            answer_within_hours="{{ params.answer_within_hours }}",
            retry_delay=timedelta(minutes=1),
        )
        SweepOperator(
            task_id="sweep",
            run=run,
            cluster=cluster,
            plan=approved.output,
            apply="{{ params.apply }}",
            empty_now="{{ params.empty_now }}",
            beside_training="{{ params.beside_training }}",
            max_active_tis_per_dagrun=4,
        )

    runs = FindRunsOperator(
        task_id="runs",
        clusters=CLUSTERS,
        only="{{ params.runs or '' }}",
        retention="{{ params.retention | tojson }}",
    )
    retention.expand_kwargs(runs.output)
