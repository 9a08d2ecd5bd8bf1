"""One container of a pod through its runs: start, probe, restart with back-off, stop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from everstep_sandbox.kubelet import probes
from everstep_sandbox.kubelet.environment import ConfigError
from everstep_sandbox.kubelet.images import ImageProblem
from everstep_sandbox.kubelet.pod_status import ContainerState
from everstep_sandbox.kubelet.process import ContainerProcess

Object = dict[str, Any]

# Of the kubelet: the first restart is immediate, the next waits 10 s, then twice as long each time up to 5
# minutes; a run of 10 minutes starts afresh.
_FIRST_BACK_OFF = 10.0
_LONGEST_BACK_OFF = 300.0
_STEADY = 600.0
_CONFIG_RETRY = 10.0
_PULL_SECONDS = 2.0


class Start(Protocol):
    """Makes the process of a container; raises ConfigError or OSError."""

    def __call__(self, container: Object) -> Awaitable[ContainerProcess]: ...


class Container:
    """Runs one container by its restart rule. `changed` is called after every change of `state`."""

    def __init__(
        self,
        spec: Object,
        state: ContainerState,
        *,
        restarts_after: Callable[[int], bool],
        start: Start,
        changed: Callable[[], None],
        address: str,
        directory: Path,
        speed: float,
        report: Callable[[str, str, str], None],
    ) -> None:
        self.spec = spec
        self.state = state
        self.process: ContainerProcess | None = None
        self.is_started = asyncio.Event()
        self._restarts_after = restarts_after
        self._start = start
        self._changed = changed
        self._address = address
        self._directory = directory
        self._speed = speed
        self._report = report
        self._back_off = 0.0
        self._pull_back_off = 0.0

    async def run(self) -> int:
        """Returns the exit code of the last run; cancelling leaves a running process to `stop`."""
        while True:
            if self.state.exit_code is None:
                await self._run_once()
            code = self.state.exit_code
            if code is None or not self._restarts_after(code):
                return code or 0
            await self._wait_to_restart()

    def signal(self, number: int) -> bool:
        """Signals the running process; False where there is none."""
        if self.process is None or self.process.exited.done():
            return False
        self.process.signal(number)
        return True

    async def ended(self) -> None:
        """Waits for the process to end, and records how."""
        if self.process is not None and self.state.exit_code is None:
            self._record(await asyncio.shield(self.process.exited))

    async def _run_once(self) -> None:
        while True:
            try:
                self.process = await self._start(self.spec)
                break
            except ImageProblem as problem:
                await self._wait_for_image(problem)
            except ConfigError as error:
                self.state.back_off("CreateContainerConfigError", str(error))
                self._changed()
                self._report("Warning", "Failed", f"Error: {error}")
                await asyncio.sleep(_CONFIG_RETRY / self._speed)
            except OSError as error:
                now = _now()
                self.state.start("", now)
                self.state.terminate(128, now, reason="StartError", message=f"exec: {error.filename or ''}: {error}")
                self._changed()
                self._report("Warning", "Failed", f"Error: failed to start container: {error}")
                return
        began = time.monotonic()
        self.state.start(f"everstep://{self.process.pid}", _now())
        self._report("Normal", "Started", f"Started container {self.state.name}")
        watching = asyncio.create_task(self._probe())
        try:
            code = await asyncio.shield(self.process.exited)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        self._record(code)
        if time.monotonic() - began > _STEADY / self._speed:
            self._back_off = 0.0

    async def _wait_for_image(self, problem: ImageProblem) -> None:
        """The states and events of a pull that failed: first the error, then the back-off until the next try."""
        image = self.spec.get("image", "")
        self.state.back_off(problem.reason, str(problem))
        self._changed()
        if problem.reason == "InvalidImageName":
            self._report("Warning", "InspectFailed", str(problem))
            self._report("Warning", "Failed", "Error: InvalidImageName")
        else:
            self._report("Warning", "Failed", f'Failed to pull image "{image}": {problem}')
            self._report("Warning", "Failed", "Error: ErrImagePull")
            await asyncio.sleep(_PULL_SECONDS / self._speed)
            self.state.back_off("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {problem}')
            self._changed()
            self._report("Normal", "BackOff", f'Back-off pulling image "{image}"')
        self._pull_back_off = min(max(2 * self._pull_back_off, _FIRST_BACK_OFF), _LONGEST_BACK_OFF)
        await asyncio.sleep(self._pull_back_off / self._speed)

    def _record(self, code: int) -> None:
        self.state.terminate(code, _now())
        self.is_started.clear()
        self._changed()

    async def _probe(self) -> None:
        """Keeps `started` and `ready` true to the container's probes; without probes both hold at once."""
        startup, readiness = self.spec.get("startupProbe"), self.spec.get("readinessProbe")
        if startup:
            self._changed()
            await probes.until_success(startup, self._address, self._directory, self._speed)
        self.state.started = True
        self.is_started.set()
        if not readiness:
            self.state.ready = True
            self._changed()
            return
        self._changed()
        async for succeeded in probes.results(readiness, self._address, self._directory, self._speed):
            if succeeded != self.state.ready:
                self.state.ready = succeeded
                self._changed()

    async def _wait_to_restart(self) -> None:
        delay, self._back_off = self._back_off, min(max(2 * self._back_off, _FIRST_BACK_OFF), _LONGEST_BACK_OFF)
        if delay:
            text = f"back-off {delay:.0f}s restarting failed container={self.state.name}"
            self.state.back_off("CrashLoopBackOff", text)
            self._report("Warning", "BackOff", f"Back-off restarting failed container {self.state.name}")
        else:
            self.state.back_off("ContainerCreating")
        self._changed()
        await asyncio.sleep(delay / self._speed)
        self.state.restarts += 1


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
