"""Airflow makes the cluster, the bucket and all that training needs in an empty project."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from everstep_sandbox.airflow_stack import FINISHED
from everstep_sandbox.demo.interruptions import RunEnded
from everstep_sandbox.demo.progress import Progress
from everstep_sandbox.demo.stack import DemoStack

DAG_ID = "provision_checkpointing"
CLUSTER_FILE = "clusters/sandbox.yaml"
_TIMEOUT_SECONDS = 420.0
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Provisioned:
    """What the DAG run reports: how many changes it made, how many it left, and how long it took in seconds."""

    changed: int
    left: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def provision(stack: DemoStack, progress: Progress) -> Provisioned:
    """Triggers the DAG and waits for its end; raises :class:`RunEnded` when a task fails or it takes too long."""
    stack.airflow.wait_for_dag(DAG_ID)
    began = time.monotonic()
    run_id = stack.airflow.trigger(DAG_ID, {"cluster": CLUSTER_FILE, "mode": "apply"})
    progress(f"Airflow: {DAG_ID} is triggered on an empty project")
    ended: set[str] = set()
    while stack.airflow.run_state(DAG_ID, run_id) not in FINISHED:
        if time.monotonic() - began > _TIMEOUT_SECONDS:
            raise RunEnded(f"{DAG_ID} has not ended after {_TIMEOUT_SECONDS:.0f} s: {_tasks(stack, run_id)}")
        _tell_ended(stack, run_id, ended, progress)
        time.sleep(_POLL_SECONDS)
    failed = sorted(task for task, state in _tasks(stack, run_id).items() if state == "failed")
    if failed:
        raise RunEnded(f"task {failed[0]} of {DAG_ID} failed:\n{stack.airflow.task_log(DAG_ID, run_id, failed[0])}")
    _tell_ended(stack, run_id, ended, progress)
    report = stack.airflow.result(DAG_ID, run_id, "summary")
    return Provisioned(report["changed"], report["left"], round(time.monotonic() - began, 1))


def _tell_ended(stack: DemoStack, run_id: str, ended: set[str], progress: Progress) -> None:
    """Tells what each task changed, once."""
    for task, state in _tasks(stack, run_id).items():
        if state == "success" and task not in ended and task != "summary":
            ended.add(task)
            changes = stack.airflow.result(DAG_ID, run_id, task)["done"]
            progress(f"Airflow: {task}: {'; '.join(_words(change) for change in changes) or 'as it should be'}")


def _words(change: dict[str, Any]) -> str:
    return f"{change['object']}: {change['action']}"


def _tasks(stack: DemoStack, run_id: str) -> dict[str, Any]:
    return stack.airflow.task_states(DAG_ID, run_id)
