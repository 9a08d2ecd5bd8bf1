"""The DAG that sweeps checkpoints, in a real Airflow: found runs, a dry run, a sweep."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.retain.real_bucket import RealBucket

from everstep_sandbox.airflow_stack import FINISHED
from everstep_sandbox.demo.stack import DemoStack

DAG = "sweep_checkpoints"
NAME = "swept-run"
BACKUPS = ("2026-03-01_00-00", "2026-03-02_00-00", "2026-03-03_00-00", "2026-03-04_00-00")
CHANGES = {"runs": NAME, "retention": {"young_hours": 0, "hourly": 0, "daily": 0, "weekly": 0}}


class DemoBucket(RealBucket):
    """The bucket of the sandbox's cluster file."""

    def __init__(self, address: str) -> None:
        self.address, self.name, self.hierarchical = address, "everstep-demo", True

    def lay(self) -> None:
        record = {"nodes": 2, "workers_per_node": 1, "data_parallelism": None, "lineage": "first"}
        self.put(f"{NAME}/everstep/run.json", json.dumps(record))
        for number, name in enumerate(BACKUPS):
            # Four in one month of which hourly, daily, weekly and monthly rules keep the newest.
            self.backup(name, 100 * (number + 1), run=NAME)

    def backups(self) -> set[str]:
        return {name.split("/")[1] for name in self.names(f"{NAME}/2026-")}


@pytest.fixture
def bucket(stack: DemoStack) -> Iterator[DemoBucket]:
    made = DemoBucket(str(stack.addresses["storage"]))
    made.lay()
    stack.airflow.wait_for_dag(DAG)
    yield made
    for name in made.names(f"{NAME}/"):
        made.delete(name)


def swept(stack: DemoStack, **conf: Any) -> tuple[str, str]:
    """Trigger the DAG and wait for its end."""
    run_id = stack.airflow.trigger(DAG, {**CHANGES, **conf})
    deadline = time.monotonic() + 150
    while (state := stack.airflow.run_state(DAG, run_id)) not in FINISHED:
        assert time.monotonic() < deadline, explained(stack)
        time.sleep(0.5)
    return run_id, state


def explained(stack: DemoStack) -> str:
    """All runs of the DAG with their tasks, and what failed tries said."""
    runs = [each["dag_run_id"] for each in stack.airflow.call("GET", f"/api/v2/dags/{DAG}/dagRuns")["dag_runs"]]
    logs = [
        f"{log}:\n{line}"
        for log in stack.airflow.settings.directory.rglob("attempt=*.log")
        if DAG in str(log)
        for line in log.read_text().splitlines()
        if '"level":"error"' in line
    ]
    return "\n".join([f"{run}: {states(stack, run)}" for run in runs] + logs)[:8000]


def events_of(stack: DemoStack, run_id: str) -> list[dict[str, Any]]:
    """Asset events of a run of the DAG; they may come a moment after its end."""
    deadline = time.monotonic() + 30
    while True:
        found = stack.airflow.call("GET", "/api/v2/assets/events?limit=1000")["asset_events"]
        mine = [each for each in found if each["source_run_id"] == run_id]
        if mine or time.monotonic() > deadline:
            return mine
        time.sleep(0.5)


def states(stack: DemoStack, run_id: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    instances = stack.airflow.call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances")["task_instances"]
    for each in instances:
        found.setdefault(each["task_id"], []).append(each["state"])
    return found


def test_nothing_goes_unless_it_is_told_to_and_then_exactly_the_plan(stack: DemoStack, bucket: DemoBucket) -> None:
    run_id, state = swept(stack)
    assert (state, bucket.backups()) == ("success", set(BACKUPS)), states(stack, run_id)
    assert states(stack, run_id)["retention.sweep"] == ["success"]
    run_id, state = swept(stack, apply=True)
    assert state == "success", states(stack, run_id)
    gone = set(BACKUPS) - bucket.backups()
    assert BACKUPS[-1] in bucket.backups()
    assert BACKUPS[-2] in bucket.backups()
    trash = {name.split("/")[2] for name in bucket.names(f"{NAME}/.trash-")}
    assert trash == gone != set()
    [event] = events_of(stack, run_id)
    assert event["uri"] == f"gs://everstep-demo/{NAME}"
    assert set(event["extra"]["swept"]) == gone


def test_no_run_is_a_success(stack: DemoStack, bucket: DemoBucket) -> None:
    run_id, state = swept(stack, runs="nobody", apply=True)
    assert state == "success", states(stack, run_id)
