"""Puts deferred tasks into Airflow's database: `python -m tests.bench.seeder`, in Airflow's environment.

Reads a JSON list of [trigger class, arguments] per line, replaces all deferred tasks by one for each, and says "done".
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.providers.common.compat.sdk import DAG, BaseOperator

DAG_ID, TASK_ID, BUNDLE = "bench_waits", "wait", "bench"


def main() -> None:
    task, version = write_dag()
    print_done = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        replace_waits(json.loads(line), task, version)
        print("done", file=print_done, flush=True)


def write_dag() -> tuple[Any, Any]:
    """Store a DAG of one task; return the task and the id of the DAG's version."""
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with DAG(DAG_ID, schedule=None) as dag:
        BaseOperator(task_id=TASK_ID)
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
        session.commit()
        lazy = LazyDeserializedDAG.from_dag(dag)
        SerializedDAG.bulk_write_to_db(BUNDLE, None, [lazy], session=session)
        session.commit()
        SerializedDagModel.write_dag(lazy, bundle_name=BUNDLE, session=session)
        session.commit()
        version = DagVersion.get_latest_version(DAG_ID, session=session)
        stored = SerializedDagModel.get(DAG_ID, session=session)
        return stored.dag.get_task(TASK_ID), version.id


def replace_waits(triggers: list[tuple[str, dict[str, Any]]], task: Any, version: Any) -> None:
    """Delete all task instances and triggers, and put a deferred task instance there for each given trigger."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.sdk.timezone import utcnow
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType
    from sqlalchemy import delete

    with create_session() as session:
        for model in (TaskInstance, DagRun, Trigger):
            session.execute(delete(model))
        now = utcnow()
        for number, (classpath, arguments) in enumerate(triggers):
            run_id = f"manual__{number:04}"
            session.add(
                DagRun(
                    DAG_ID,
                    run_id,
                    run_after=now,
                    start_date=now,
                    state=DagRunState.RUNNING,
                    run_type="manual",
                    triggered_by=DagRunTriggeredByType.TEST,
                )
            )
            row = Trigger(classpath, arguments)
            session.add(row)
            session.flush()
            instance = TaskInstance(task, version, run_id=run_id, state=TaskInstanceState.DEFERRED)
            instance.trigger_id = row.id
            instance.next_method = "execute_complete"
            instance.next_kwargs = {}
            instance.start_date = now
            instance.try_number = 1
            session.add(instance)
        session.commit()


if __name__ == "__main__":
    main()
