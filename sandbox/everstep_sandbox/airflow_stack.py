"""A real Airflow 3 on loopback: API server, scheduler, dag-processor and triggerer as processes of their own.

For the demo, for ``make up`` and for the tests of the ``airflow`` tier. SQLite and the LocalExecutor are enough for one
run at a time. Each process leads a session of its own, so that it can be killed alone and with its children
(``airflow standalone`` leaves its children behind on SIGTERM).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
USER = "admin"
SESSIONS = "sessions"
"""File in AIRFLOW_HOME: the boot and the sessions (process ids of their leaders) of all components started."""
FINISHED = frozenset({"success", "failed"})


class AirflowError(RuntimeError):
    """Airflow did not start, did not answer, or refused a request."""


@dataclass(frozen=True)
class AirflowSettings:
    """What an Airflow of its own needs: where it keeps its files, its DAGs, and its environment."""

    directory: Path
    dags_folder: Path
    environment: Mapping[str, str]
    """Added to every process: connections (``AIRFLOW_CONN_…``) and endpoints of the sandbox."""


class AirflowStack:
    """Starts, asks and stops one Airflow. ``directory`` is its AIRFLOW_HOME and is made anew by :meth:`start`."""

    def __init__(self, settings: AirflowSettings) -> None:
        self.settings = settings
        self.port = _free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.password = "admin"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token: str | None = None
        self._environment = self._make_environment()

    # -- life cycle -------------------------------------------------------------------------------------------------

    def start(self, *, timeout: float = 180, progress: Callable[[str], None] = lambda _: None) -> None:
        """Migrates the database and starts all components; returns when every one of them reports healthy.

        Raises :class:`AirflowError` with the end of the log of the component that ended or did not answer.
        """
        self.settings.directory.mkdir(parents=True, exist_ok=True)
        stop_airflow(self.settings.directory)
        (self.settings.directory / "passwords.json").write_text(json.dumps({USER: self.password}))
        progress("Airflow: preparing its database")
        migrated = subprocess.run(
            [*_airflow_command(), "db", "migrate"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if migrated.returncode:
            raise AirflowError(f"airflow db migrate ended with {migrated.returncode}:\n{migrated.stderr[-2000:]}")
        progress("Airflow: starting API server, scheduler, dag-processor and triggerer")
        for component in COMPONENTS:
            self.start_component(component)
        self._wait_healthy(timeout, progress)

    def start_component(self, component: str) -> None:
        """Starts (again) one of ``COMPONENTS``; its output goes to ``<component>.log`` under the directory."""
        arguments = ["--skip-serve-logs"] if component in ("scheduler", "triggerer") else []
        log = (self.settings.directory / f"{component}.log").open("ab")
        with log:
            self._processes[component] = subprocess.Popen(
                [*_airflow_command(), component, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _record_session(self.settings.directory, self._processes[component].pid)

    def kill_component(self, component: str) -> None:
        """kill -9 of a component and everything that it started, as a lost machine would do."""
        leader = self._processes.pop(component)
        for process in _family(leader.pid):
            _signal(process, signal.SIGKILL)
        leader.wait()

    def stop_component(self, component: str, *, grace: float = 20) -> None:
        """SIGTERM to a component, as a roll-out does, and SIGKILL to what is left of it after ``grace`` seconds."""
        family = _family(self._processes[component].pid)
        process = self._processes.pop(component)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        for left in family:
            _signal(left, signal.SIGKILL)
        process.wait()

    def processes(self) -> dict[str, int]:
        """Process id of each running component."""
        return {name: process.pid for name, process in self._processes.items() if process.poll() is None}

    def stop(self, *, grace: float = 8) -> None:
        """Ends every component and its children; see :func:`stop_airflow`. Idempotent."""
        stop_airflow(self.settings.directory, grace=grace)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    # -- REST API ---------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """One call of Airflow's public REST API, e.g. ``call("GET", "/api/v2/dags")``; returns the decoded answer."""
        if self._token is None:
            answer = requests.post(
                f"{self.address}/auth/token", json={"username": USER, "password": self.password}, timeout=60
            )
            answer.raise_for_status()
            self._token = answer.json()["access_token"]
        answer = requests.request(
            method, self.address + path, headers={"Authorization": f"Bearer {self._token}"}, timeout=60, **arguments
        )
        if answer.status_code >= 400:
            raise AirflowError(f"{method} {path}: Airflow answered {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    def wait_for_dag(self, dag_id: str, *, timeout: float = 120) -> None:
        """Waits until the dag-processor has read a DAG, then unpauses it."""
        deadline = time.monotonic() + timeout
        while True:
            errors = self.call("GET", "/api/v2/importErrors")["import_errors"]
            if errors:
                raise AirflowError("\n".join(f"{error['filename']}:\n{error['stack_trace']}" for error in errors))
            if any(dag["dag_id"] == dag_id for dag in self.call("GET", "/api/v2/dags?limit=1000")["dags"]):
                break
            if time.monotonic() > deadline:
                raise AirflowError(f"the DAG {dag_id} did not appear within {timeout:.0f} s")
            time.sleep(0.5)
        self.call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, configuration: Mapping[str, Any] | None = None) -> str:
        """Starts a DAG run as the Trigger button does; returns its run id."""
        body = {"logical_date": None, "conf": dict(configuration or {})}
        run_id: str = self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)["dag_run_id"]
        return run_id

    def run_state(self, dag_id: str, run_id: str) -> str:
        """State of a DAG run: queued, running, success or failed."""
        state: str = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"]
        return state

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """State of each task of a DAG run, by task id, in the order in which they started."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100"
        tasks = self.call("GET", path)["task_instances"]
        tasks.sort(key=lambda task: task["start_date"] or "9")
        return {task["task_id"]: task["state"] for task in tasks}

    def result(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What a task returned (its XCom ``return_value``)."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        value = self.call("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, attempt: int = 1) -> str:
        """The log of one try of a task, one line an event."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}?full_content=true"
        content = self.call("GET", path)["content"]
        return "\n".join(line if isinstance(line, str) else _log_line(line) for line in content)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _make_environment(self) -> dict[str, str]:
        home = self.settings.directory.resolve()
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.settings.dags_folder.resolve()),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.address}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.address,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
            # A supervisor that lingers makes a quick resume look like a failure (apache/airflow#66374).
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **self.settings.environment,
        }

    def _wait_healthy(self, timeout: float, progress: Callable[[str], None]) -> None:
        deadline = time.monotonic() + timeout
        waiting: set[str] = set()
        while time.monotonic() < deadline:
            for component, process in self._processes.items():
                if process.poll() is not None:
                    raise AirflowError(
                        f"Airflow's {component} ended with {process.returncode}:\n{self._log_end(component)}"
                    )
            still = self._unhealthy()
            if not still:
                progress(f"Airflow: healthy at {self.address}")
                return
            if still != waiting:
                waiting = still
                progress(f"Airflow: waiting for {', '.join(sorted(still))}")
            time.sleep(0.5)
        component = sorted(waiting)[0]
        raise AirflowError(f"Airflow's {component} was not healthy within {timeout:.0f} s:\n{self._log_end(component)}")

    def _unhealthy(self) -> set[str]:
        try:
            health = requests.get(f"{self.address}/api/v2/monitor/health", timeout=10).json()
        except (requests.RequestException, ValueError):
            return {"api-server"}
        names = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
        return {name for name, key in names.items() if health.get(key, {}).get("status") != "healthy"}

    def _log_end(self, component: str) -> str:
        log = self.settings.directory / f"{component}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "(no log)"


def stop_airflow(directory: Path, *, grace: float = 8) -> None:
    """Ends every process of the Airflow whose home is ``directory``: SIGTERM, then SIGKILL after ``grace`` seconds.

    They are told by the session that their component led, so that those whose parent was killed are found too, and
    those that an earlier command left running. (Airflow overwrites its processes' environments with their titles.)
    """
    sessions = _recorded_sessions(directory)
    found = [process for process in psutil.process_iter() if _session_of(process) in sessions]
    for process in found:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(found, timeout=grace)
    # Those that were started meanwhile count too.
    alive += [process for process in psutil.process_iter() if _session_of(process) in sessions]
    for process in alive:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)
    (directory / SESSIONS).unlink(missing_ok=True)


def _recorded_sessions(directory: Path) -> set[int]:
    try:
        boot, *sessions = (directory / SESSIONS).read_text().split()
    except (FileNotFoundError, ValueError):
        return set()
    # A number of an earlier boot means another process by now.
    return {int(session) for session in sessions} if boot == _boot() else set()


def _record_session(directory: Path, session: int) -> None:
    record = directory / SESSIONS
    if not _recorded_sessions(directory):
        record.write_text(_boot())
    with record.open("a") as file:
        file.write(f" {session}")


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        return None


def _log_line(entry: Mapping[str, Any]) -> str:
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in entry.get("error_detail") or ()]
    return "\n".join([str(entry.get("event", entry)), *causes])


def _airflow_command() -> list[str]:
    return [sys.executable, "-m", "airflow"]


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
