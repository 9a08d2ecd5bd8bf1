"""The sandbox's long-running processes: how each is started, and how it says that it answers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PART_MARKER = "EVERSTEP_SANDBOX_PART"
"""Environment variable that every part and what it starts carries: `<directory>|<part>`."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_ANSWER_SECONDS = 60.0


class PartError(Exception):
    """A part did not start; the text holds the end of its log."""


@dataclass(slots=True)
class Part:
    """One process with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, file: Path, seconds: float = _ANSWER_SECONDS) -> str:
        """The text of a file that the part writes once it answers; raises PartError when it ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not file.exists():
            if not self.is_alive():
                raise PartError(
                    f"{self.name} ended with exit code {self.process.returncode}; "
                    f"its log {self.log} ends with:\n{log_end(self.log)}"
                )
            if time.monotonic() > deadline:
                raise PartError(
                    f"{self.name} does not answer after {seconds:.0f} s; its log {self.log} ends "
                    f"with:\n{log_end(self.log)}"
                )
            time.sleep(0.02)
        return file.read_text()

    def end_by(self, deadline: float) -> None:
        """Waits for a part that was told to end; kills it at the deadline (of time.monotonic)."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
            return
        self.process.kill()
        self.process.wait()


def start(directory: Path, name: str, module: str, *arguments: str) -> Part:
    """Starts `python -m module`; it gets SIGTERM when this process ends, however it ends."""
    return start_program(directory, name, sys.executable, "-m", module, *arguments)


def start_program(
    directory: Path, name: str, program: str, *arguments: str, orphaned: signal.Signals = signal.SIGTERM
) -> Part:
    """Starts a program; it gets the signal `orphaned` when this process ends, however it ends."""
    log = directory / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment: Mapping[str, str] = {**os.environ, PART_MARKER: f"{directory}|{name}"}
    with log.open("ab") as output:
        parent = os.getpid()
        # Whoever starts parts has one thread, so that running code between fork and exec is safe.
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: _end_with_parent(parent, orphaned),  # noqa: PLW1509
        )
    return Part(name, process, log)


def _end_with_parent(parent: int, number: signal.Signals) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # It had ended before it was asked for its end.
    # The supervisor blocks its signals while it waits for them; a part must not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def log_end(log: Path, lines: int = 12) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
