"""A container as a local process group that can't outlive the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from everstep_sandbox.kubelet.container_log import ContainerLog

MARKER = "EVERSTEP_SANDBOX_CONTAINER"
"""Environment variable that every process of a container carries: `<directory>|<pod uid>|<container>`."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)

_first_processes: set[int] = set()
"""Processes that a ContainerProcess waits for; every other child is an adopted orphan."""

# Training on all cores must not starve the control plane that shares them.
_NICENESS = 5
_DRAIN_SECONDS = 1.0


def become_subreaper() -> None:
    """Makes orphans of containers children of this process, so that they can be found and reaped."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _in_child() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.nice(_NICENESS)


class ContainerProcess:
    """A running container. `exited` resolves with the exit code (128 + signal) once its log is complete."""

    def __init__(self, popen: subprocess.Popen[bytes], log: ContainerLog, marker: str) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._log = log
        self._marker = marker
        _first_processes.add(self.pid)
        self.exited: asyncio.Task[int] = asyncio.get_running_loop().create_task(self._wait())

    @classmethod
    async def start(
        cls, words: Sequence[str], environment: Mapping[str, str], directory: Path, log_file: Path, marker: str
    ) -> ContainerProcess:
        """Starts the command in a session of its own; raises OSError where it can't be executed."""
        # The kubelet has one thread, so that running code between fork and exec is safe; and asyncio's own
        # subprocesses would not leave the moment of reaping to us.
        popen = subprocess.Popen(  # noqa: ASYNC220
            words,
            env={**environment, MARKER: marker},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_in_child,  # noqa: PLW1509
        )
        try:
            log = ContainerLog(log_file)
            for pipe, stream in ((popen.stdout, "stdout"), (popen.stderr, "stderr")):
                if pipe is not None:
                    await log.attach(os.dup(pipe.fileno()), stream)
                    pipe.close()
        except BaseException:
            # Nobody would know of the process: the pod may just be being deleted.
            popen.kill()
            popen.wait()
            raise
        return cls(popen, log, marker)

    def signal(self, number: int) -> None:
        """Signals the container's first process, as a runtime does; SIGKILL reaches all of them."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            elif self._popen.poll() is None:
                os.kill(self.pid, number)

    async def stop(self, grace: float) -> int:
        """SIGTERM, and SIGKILL after `grace` seconds; the exit code."""
        if grace > 0:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self.exited), grace)
        self.signal(signal.SIGKILL)
        return await self.exited

    async def _wait(self) -> int:
        await _ended(self.pid)
        code = self._popen.wait()
        _first_processes.discard(self.pid)
        # With a container's first process all others go.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        kill_marked(self._marker)
        await self._log.finish(_DRAIN_SECONDS)
        return code if code >= 0 else 128 - code


async def _ended(pid: int) -> None:
    """Returns once a child has ended, without reaping it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def kill_marked(marker: str) -> int:
    """Kills every process whose marker starts with `marker`, wherever it has gone; returns how many."""
    wanted = f"{MARKER}={marker}".encode()
    killed = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if variables.startswith(wanted) or b"\0" + wanted in variables:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry), signal.SIGKILL)
                killed += 1
    return killed


class OrphanReaper:
    """Reaps children that nobody waits for (orphans that this process has adopted).

    A child that somebody does wait for may be found ended for a moment too; so only what was found ended by the
    call before is reaped.
    """

    def __init__(self) -> None:
        self._ended: set[int] = set()

    def reap(self) -> None:
        ended = set()
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.pid not in _first_processes and child.status() == psutil.STATUS_ZOMBIE:
                    ended.add(child.pid)
        for pid in ended & self._ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = ended
