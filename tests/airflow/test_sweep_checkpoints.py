"""The DAG that sweeps checkpoints, in a real Airflow: found runs, a dry run, a sweep, and a person who is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.retain.real_bucket import RealBucket

from everstep_sandbox.airflow_stack import FINISHED
from everstep_sandbox.demo.stack import DemoStack

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(420)]

DAG = "sweep_checkpoints"
NAME = "swept-run"
OTHER = "other-run"
BACKUPS = ("2026-03-01_00-00", "2026-03-02_00-00", "2026-03-03_00-00", "2026-03-04_00-00")
CHANGES = {"runs": NAME, "retention": {"young_hours": 0, "hourly": 0, "daily": 0, "weekly": 0}}
# Airflow takes a task that goes on while the executor still reports its first half for failed (apache/airflow#66374);
# it would be tried again, and ask again.
PARKED_SECONDS = 12


class DemoBucket(RealBucket):
    """The bucket of the sandbox's cluster file."""

    def __init__(self, address: str) -> None:
        self.address, self.name, self.hierarchical = address, "everstep-demo", True

    def lay(self, run: str = NAME) -> None:
        record = {"nodes": 2, "workers_per_node": 1, "data_parallelism": None, "lineage": "first"}
        self.put(f"{run}/everstep/run.json", json.dumps(record))
        for number, name in enumerate(BACKUPS):
            # Four in one month of which hourly, daily, weekly and monthly rules keep the newest.
            self.backup(name, 100 * (number + 1), run=run)

    def backups(self, run: str = NAME) -> set[str]:
        return {name.split("/")[1] for name in self.names(f"{run}/2026-")}


@pytest.fixture
def bucket(stack: DemoStack) -> Iterator[DemoBucket]:
    made = DemoBucket(str(stack.addresses["storage"]))
    made.lay()
    stack.airflow.wait_for_dag(DAG)
    yield made
    for run in (NAME, OTHER):
        for name in made.names(f"{run}/"):
            made.delete(name)


def swept(stack: DemoStack, **conf: Any) -> tuple[str, str]:
    """Trigger the DAG and wait for its end."""
    return ended(stack, stack.airflow.trigger(DAG, {**CHANGES, **conf}))


def ended(stack: DemoStack, run_id: str) -> tuple[str, str]:
    """Wait for the end of a run of the DAG."""
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


def asked(stack: DemoStack, run_id: str, count: int) -> dict[str, dict[str, Any]]:
    """Wait until so many tasks of a run of the DAG wait for a person; return what each asks, by its subject."""
    deadline = time.monotonic() + 150
    while True:
        found = stack.airflow.call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run_id}/hitlDetails")["hitl_details"]
        if [each["task_instance"]["state"] for each in found] == ["awaiting_input"] * count:
            return {each["subject"]: each for each in found}
        assert time.monotonic() < deadline, explained(stack)
        time.sleep(0.5)


def answer(stack: DemoStack, question: dict[str, Any], choice: str) -> None:
    """Answer as a person does in Airflow's UI."""
    task = question["task_instance"]
    place = f"/api/v2/dags/{DAG}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/{task['map_index']}"
    stack.airflow.call("PATCH", f"{place}/hitlDetails", json={"chosen_options": [choice], "params_input": {}})


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


def test_no_run_found_is_a_success_and_one_that_was_named_has_to_be_there(stack: DemoStack, bucket: DemoBucket) -> None:
    for name in bucket.names():
        if name.startswith(f"{NAME}/"):
            bucket.delete(name)
    assert not [name for name in bucket.names() if name.endswith("/everstep/run.json")], "runs of other tests"
    run_id, state = swept(stack, runs=None, apply=True)
    assert (state, states(stack, run_id)["retention.sweep"]) == ("success", ["skipped"]), explained(stack)
    run_id, state = swept(stack, runs="nobody", apply=True)
    assert (state, states(stack, run_id)["runs"]) == ("failed", ["failed"])
    assert "no run nobody in gs://everstep-demo" in explained(stack)


def test_a_person_approves_one_plan_and_rejects_another(stack: DemoStack, bucket: DemoBucket) -> None:
    bucket.lay(OTHER)
    run_id = stack.airflow.trigger(DAG, {**CHANGES, "runs": f"{NAME},{OTHER}", "apply": True, "approve": True})
    questions = asked(stack, run_id, 2)
    assert (bucket.backups(), bucket.backups(OTHER)) == (set(BACKUPS), set(BACKUPS))
    time.sleep(PARKED_SECONDS)
    mine, other = (questions[f"Sweep old checkpoints of {run}?"] for run in (NAME, OTHER))
    answer(stack, mine, "Approve")
    answer(stack, other, "Reject")
    assert ended(stack, run_id)[1] == "success", explained(stack)
    gone = set(BACKUPS) - bucket.backups()
    assert gone == {name for name in BACKUPS if f"| {name} | " in mine["body"]} != set()
    assert bucket.backups(OTHER) == set(BACKUPS)
    found = states(stack, run_id)
    assert sorted(found["retention.approve"]) == sorted(found["retention.sweep"]) == ["skipped", "success"]
    [event] = events_of(stack, run_id)
    assert set(event["extra"]["swept"]) == gone
    assert event["extra"]["plan"] in mine["body"]


def test_what_nobody_approves_in_time_stays(stack: DemoStack, bucket: DemoBucket) -> None:
    run_id, state = swept(stack, apply=True, approve=True, answer_within_hours=0.005)
    found = states(stack, run_id)
    assert (state, found["retention.approve"], found["retention.sweep"]) == ("failed", ["failed"], ["upstream_failed"])
    assert bucket.backups() == set(BACKUPS)
    assert "nobody answered within 0.005 hours: nothing is swept" in explained(stack)
