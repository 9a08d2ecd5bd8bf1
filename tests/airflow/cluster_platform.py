"""An empty sandbox project, and an Airflow beside it whose DAGs find it by their connections."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.provision.provisioned_project import ProvisionedProject

from everstep_sandbox.airflow_stack import FINISHED, AirflowSettings, AirflowStack
from everstep_sandbox.demo.stack import PROJECT, REPOSITORY

CLUSTER = "clusters/sandbox.yaml"


def small_dags(directory: Path) -> None:
    """Copy the DAGs of the repository; their cluster has two slices instead of three."""
    shutil.copytree(REPOSITORY / "dags", directory / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    file = directory / "dags" / CLUSTER
    document = yaml.safe_load(file.read_text())
    document["pools"]["v6e-2x4"]["slices"] = 2
    file.write_text(yaml.safe_dump(document))


class Platform:
    """The project and its Airflow, in one directory."""

    def __init__(self, directory: Path, airflow_options: Mapping[str, str]) -> None:
        small_dags(directory)
        self.project = ProvisionedProject(directory, "sandbox")
        self.sandbox_directory = self.project.directory
        self.project.up(speed=10)
        settings = AirflowSettings(directory / "airflow", directory / "dags", self._environment(airflow_options))
        self.airflow = AirflowStack(settings)

    @property
    def addresses(self) -> Mapping[str, Any]:
        """The sandbox's addresses and files."""
        found: Mapping[str, Any] = json.loads((self.sandbox_directory / "sandbox.json").read_text())
        return found

    def client_environment(self) -> dict[str, str]:
        """What clients of Cloud Storage in this process need to find the sandbox's."""
        return {"STORAGE_EMULATOR_HOST": self.project.record.storage}

    def _environment(self, options: Mapping[str, str]) -> dict[str, str]:
        google = {
            "is_anonymous": True,
            "project": PROJECT,
            "google_endpoint": self.project.record.google,
            "storage_endpoint": self.project.record.storage,
        }
        # The cluster writes this file once it exists.
        kubernetes = {"kube_config_path": str(self.sandbox_directory / "kubeconfig")}
        return {
            **options,
            **self.client_environment(),
            "AIRFLOW_CONN_EVERSTEP_SANDBOX": json.dumps({"conn_type": "kubernetes", "extra": kubernetes}),
            "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps({"conn_type": "google_cloud_platform", "extra": google}),
        }

    def stop(self) -> None:
        """End both."""
        self.airflow.stop()
        self.project.command("down")


class DagRun:
    """One run of a DAG for clusters."""

    def __init__(self, platform: Platform, dag_id: str, mode: str, **conf: Any) -> None:
        self.platform = platform
        self.dag_id = dag_id
        self.run_id = platform.airflow.trigger(dag_id, {"cluster": CLUSTER, "mode": mode, **conf})

    def end(self, timeout: float = 300) -> str:
        """Wait for its end; return its state."""
        until(lambda: self._state() in FINISHED, timeout, self.explain)
        return self._state()

    def succeed(self, timeout: float = 300) -> dict[str, Any]:
        """Wait for its end, which has to be a good one; return the summary."""
        assert self.end(timeout) == "success", self.explain()
        summary: dict[str, Any] = self.platform.airflow.result(self.dag_id, self.run_id, "summary")
        return summary

    def tries(self, task: str) -> int:
        """How often a task was begun."""
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{task}"
        return int(self.platform.airflow.call("GET", path)["try_number"])

    def task(self, task: str) -> str | None:
        """A task's state."""
        return self.platform.airflow.task_states(self.dag_id, self.run_id)[task]

    def log(self, task: str, attempt: int = 1) -> str:
        """The log of one try of a task."""
        return self.platform.airflow.task_log(self.dag_id, self.run_id, task, attempt=attempt)

    def kill_at_next_change(self, task: str, timeout: float = 240) -> str:
        """kill -9 a task's process as soon as the task has changed something; return the change."""
        until(lambda: self.task(task) == "running", timeout, self.explain)
        before = Counter(self.platform.project.calls())
        until(lambda: Counter(self.platform.project.calls()) != before, timeout, self.explain, pause=0.01)
        killed = self._kill_task_processes()
        assert killed, f"no process of {task} was there to be killed"
        made = Counter(self.platform.project.calls()) - before
        until(lambda: self.task(task) == "up_for_retry", 60, self.explain)
        return ", ".join(made.elements())

    def _kill_task_processes(self) -> int:
        """Task processes are children of the executor's workers, which are children of the scheduler."""
        scheduler = psutil.Process(self.platform.airflow.processes()["scheduler"])
        tasks = [task for worker in scheduler.children() for task in worker.children()]
        for task in tasks:
            task.send_signal(signal.SIGKILL)
        return len(tasks)

    def _state(self) -> str:
        return self.platform.airflow.run_state(self.dag_id, self.run_id)

    def explain(self) -> str:
        """What there is to see of it."""
        states = self.platform.airflow.task_states(self.dag_id, self.run_id)
        failed = [task for task, state in states.items() if state in ("failed", "up_for_retry")]
        return "\n".join([f"{self.dag_id}: {states}", *(self.log(task, self.tries(task))[-3000:] for task in failed)])


def until(
    holds: Callable[[], bool], seconds: float, explain: Callable[[], str] | None = None, *, pause: float = 0.3
) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {explain() if explain else ''}")
        time.sleep(pause)
