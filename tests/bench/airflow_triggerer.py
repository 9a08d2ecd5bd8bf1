"""A real Airflow triggerer on a metadata database of its own, with deferred tasks put into it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import psutil
from tests.bench.notes import NOTES
from tests.bench.output import REPOSITORY
from tests.bench.waited_objects import Trigger

from everstep_sandbox.airflow_stack import AirflowSettings, AirflowStack


class BenchAirflow(AirflowStack):
    """Database, a process that puts waits into it, and at most one triggerer. A context manager."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        dags = directory / "dags"
        dags.mkdir(parents=True)
        self.notes = directory / "notes.jsonl"
        super().__init__(
            AirflowSettings(
                directory,
                dags,
                {**environment, "PYTHONPATH": str(REPOSITORY), NOTES: str(self.notes)},
            )
        )
        self._seeder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Make the database. Raises RuntimeError when that fails."""
        self._run([sys.executable, "-m", "airflow", "db", "migrate"])
        with (self.settings.directory / "seeder.log").open("w") as log:
            self._seeder = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.seeder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                cwd=REPOSITORY,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._seeder is not None:
            self._seeder.kill()
            self._seeder.communicate()

    def seed(self, triggers: list[Trigger]) -> None:
        """Replace all deferred tasks by one for each trigger, and forget all notes."""
        self.notes.write_text("")
        assert self._seeder is not None and self._seeder.stdin is not None and self._seeder.stdout is not None
        self._seeder.stdin.write(json.dumps(triggers) + "\n")
        self._seeder.stdin.flush()
        if not self._seeder.stdout.readline():
            raise RuntimeError((self.settings.directory / "seeder.log").read_text()[-3000:])

    def family(self) -> list[psutil.Process]:
        """Return the triggerer's processes: the supervisor, and the runner with the event loop."""
        leader = psutil.Process(self.processes()["triggerer"])
        return [leader, *leader.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Return the processor seconds that the triggerer has used."""
        times = [process.cpu_times() for process in self.family()]
        return sum(each.user + each.system for each in times)

    def resident(self) -> dict[str, int]:
        """Return the resident bytes of the supervisor and of the runner."""
        supervisor, *others = self.family()
        return {
            "supervisor": supervisor.memory_info().rss,
            "runner": sum(process.memory_info().rss for process in others),
        }

    def noted(self, what: str) -> dict[str, dict[str, Any]]:
        """Return the notes of one kind by the name of the wait."""
        if not self.notes.exists():
            return {}
        lines = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return {line["name"]: line for line in lines if line["what"] == what}

    def wait_for_notes(self, what: str, names: Collection[str], seconds: float) -> dict[str, dict[str, Any]]:
        """Return the notes of one kind when all those waits have left theirs, or after some seconds."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.noted(what)
            if found.keys() >= set(names) or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

    def log_end(self) -> str:
        """Return the end of the triggerer's log."""
        return self._log_end("triggerer")

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
