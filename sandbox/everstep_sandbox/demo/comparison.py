"""The same training without faults, in a process tree of its own, to compare the interrupted one with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Outcome:
    """What a training ended with; two trainings are the same when all of it is equal, bit for bit."""

    final_step: int
    loss: float
    weights_sha256: str


@dataclass(frozen=True)
class Pace:
    """How fast this machine trains, in seconds: from a process's start to its first step, and for one step."""

    start: float
    step: float


class Comparison:
    """An uninterrupted training in the background. Its processes know nothing of clusters, buckets or Airflow."""

    def __init__(
        self, output: Path, *, slices: int, nodes_per_slice: int, steps: int, skip_batch: int | None = None
    ) -> None:
        self._output = output
        arguments = [f"--slices={slices}", f"--nodes-per-slice={nodes_per_slice}", f"--steps={steps}"]
        if skip_batch is not None:
            arguments.append(f"--skip-batch={skip_batch}")
        with output.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "everstep_trainer.examples.stdlib_lm.reference",
                    *arguments,
                    f"--output={output}",
                ],
                env={name: value for name, value in os.environ.items() if not name.startswith(("EVERSTEP", "STORAGE"))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pace(self) -> Pace:
        """How fast it trained; to be asked after :meth:`wait`."""
        content = json.loads(self._output.read_text())
        return Pace(float(content["start_seconds"]), float(content["step_seconds"]))

    def wait(self, *, timeout: float = 300) -> Outcome:
        """Waits for its end; raises RuntimeError with the end of its log if it failed."""
        code = self._process.wait(timeout=timeout)
        if code:
            log = self._output.with_suffix(".log").read_text(errors="replace")
            raise RuntimeError(f"the uninterrupted training ended with {code}:\n{log[-2000:]}")
        content = json.loads(self._output.read_text())
        return Outcome(int(content["final_step"]), float(content["loss"]), str(content["weights_sha256"]))

    def stop(self) -> None:
        """Ends it and its children, if they still run."""
        if self._process.poll() is not None:
            return
        parent = psutil.Process(self._process.pid)
        for process in [*parent.children(recursive=True), parent]:
            process.kill()
        self._process.wait()
