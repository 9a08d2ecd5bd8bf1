"""One sandbox and one Airflow for the whole tier: both are real, and starting them costs most of a minute."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep.checkpoints.catalogue import Shape
from everstep.clients.access import ClusterAccess
from everstep.clients.resources import JOBSETS
from everstep_sandbox.airflow_stack import FINISHED
from everstep_sandbox.demo.progress import Progress
from everstep_sandbox.demo.run_view import RunView
from everstep_sandbox.demo.stack import DemoStack

# A worker that was killed is noticed after half a minute instead of five; less would take a slow machine's workers for
# dead while they import.
QUICK_DETECTION = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}


@pytest.fixture(scope="session")
def stack() -> Iterator[DemoStack]:
    # Unix sockets below it need a short path, which pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="everstep-", ignore_cleanup_errors=True) as directory:
        started = DemoStack(Path(directory), Progress(), airflow_options=QUICK_DETECTION)
        before = dict(os.environ)
        try:
            started.start_sandbox()
            os.environ.update(started.client_environment())
            started.start_airflow()
            started.airflow.wait_for_dag("train_resilient")
            yield started
        finally:
            started.stop()
            os.environ.clear()
            os.environ.update(before)


class Run:
    """One run of the DAG, on a single slice so that two cores are enough."""

    dag_id = "train_resilient"

    def __init__(self, stack: DemoStack, name: str, *, steps: int, **overrides: Any) -> None:
        self.stack = stack
        self.name = name
        self.overrides = {
            "name": name,
            "final_step": steps,
            "slices": {"count": 1},
            "checkpoints": {"data_parallelism": 1, "backup": {"every_minutes": 30}},
            **overrides,
        }
        self.view = RunView(
            kubeconfig=str(stack.addresses["kubeconfig"]),
            namespace="default",
            bucket="everstep-demo",
            run=name,
            shape=Shape(2, 1, 1),
        )
        self.run_id = ""

    def trigger(self) -> Run:
        conf = {"run": "runs/stdlib-lm.yaml", "overrides": self.overrides}
        self.run_id = self.stack.airflow.trigger(self.dag_id, conf)
        return self

    @property
    def tasks(self) -> dict[str, str | None]:
        return self.stack.airflow.task_states(self.dag_id, self.run_id)

    @property
    def step(self) -> int:
        return int(self.view.status().get("step") or 0)

    @property
    def uid(self) -> str | None:
        jobset = self.view.jobset()
        return None if jobset is None else str(jobset["metadata"]["uid"])

    def writes(self) -> list[dict[str, Any]]:
        """All committed writes to the run's JobSets, from the API's write log."""
        log = Path(self.stack.sandbox_directory) / "writes.jsonl"
        writes = [json.loads(line) for line in log.read_text().splitlines()]
        return [write for write in writes if (write["resource"], write["name"]) == ("jobsets", self.name)]

    def jobsets_created(self) -> list[dict[str, Any]]:
        return [write for write in self.writes() if write["verb"] == "create"]

    def changes(self) -> list[tuple[str, str]]:
        """What Everstep did to the run's JobSets after it had made them: verb and uid."""
        own = [write for write in self.writes() if write["userAgent"] == "everstep" and write["verb"] != "create"]
        return [(write["verb"], write["uid"]) for write in own]

    def wait_until_trained(self) -> None:
        """Wait until a triggerer waits for the run, and the run has made steps."""
        self.wait_for(lambda: self.tasks.get("launch") == "deferred" and self.step > 0 and bool(self.waits()), 180)

    def mark_launch_failed(self) -> None:
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/launch"
        self.stack.airflow.call("PATCH", path, json={"new_state": "failed"})

    def clear_launch(self) -> None:
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": ["launch"],
            "include_downstream": True,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.stack.airflow.call("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", json=body)

    def end(self, timeout: float = 300) -> str:
        self.wait_for(lambda: self.stack.airflow.run_state(self.dag_id, self.run_id) in FINISHED, timeout)
        return self.stack.airflow.run_state(self.dag_id, self.run_id)

    def explain(self) -> str:
        log = self.log("launch")[-2000:] if self.tasks.get("launch") == "failed" else ""
        return f"{self.name}: tasks {self.tasks}, status {self.view.status()}\n{log}"

    def log(self, task: str, attempt: int = 1) -> str:
        return self.stack.airflow.task_log(self.dag_id, self.run_id, task, attempt=attempt)

    def discard(self) -> None:
        """End a run whose end does not matter, and free its slice."""
        self.mark_launch_failed()
        self.end()
        self.delete_jobset()

    def delete_jobset(self) -> None:
        with ClusterAccess.of_kubeconfig(self.stack.addresses["kubeconfig"]).open() as client:
            client.delete(JOBSETS, self.name, "default")
        self.wait_for(lambda: self.uid is None, 60)

    def waits(self) -> set[tuple[int, int]]:
        """The waits that have seen the run train, as try and triggerer, by the log that each of them writes."""
        found = set()
        for log in self.stack.airflow.settings.directory.rglob("attempt=*.log.trigger.*.log"):
            if self.run_id in str(log) and f"JobSet default/{self.name}: running" in log.read_text():
                attempt, triggerer = re.findall(r"\d+", log.name)
                found.add((int(attempt), int(triggerer)))
        return found

    def triggerers(self) -> int:
        """How many triggerers, one after the other, have waited for the run."""
        return len({triggerer for _, triggerer in self.waits()})

    def wait_for(self, condition: Callable[[], bool], timeout: float, explain: Callable[[], str] | None = None) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout:.0f} s: {(explain or self.explain)()}")
            time.sleep(0.3)


@pytest.fixture
def new_run(stack: DemoStack) -> Callable[..., Run]:
    """Make a run of the DAG: `new_run(name, steps=…, **overrides)`."""
    return lambda name, **options: Run(stack, name, **options)
