"""One pod on its node: volumes, init containers, containers, termination, and its status in the API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep_sandbox.kubelet import environment
from everstep_sandbox.kubelet.api import Api
from everstep_sandbox.kubelet.container import Container
from everstep_sandbox.kubelet.container_log import log_path
from everstep_sandbox.kubelet.identities import Identities
from everstep_sandbox.kubelet.images import Images
from everstep_sandbox.kubelet.pod_status import ContainerState, is_sidecar, phase
from everstep_sandbox.kubelet.process import ContainerProcess, kill_marked
from everstep_sandbox.kubelet.references import References
from everstep_sandbox.kubelet.reporting import PodReporter, recorded_state
from everstep_sandbox.kubelet.rewriting import Rewriter
from everstep_sandbox.kubelet.volumes import MountError, PodVolumes, mounts

logger = logging.getLogger(__name__)

Object = dict[str, Any]

# The kubelet waits 0.5 s after a failed mount, then twice as long each time up to 2 min 2 s.
_FIRST_MOUNT_RETRY = 0.5
_LONGEST_MOUNT_RETRY = 122.0


@dataclass(slots=True)
class NodeContext:
    """What a pod sees of the machine that it runs on."""

    name: str
    address: str
    directory: Path
    may_start: asyncio.Event
    """Cleared while something is being done to the machine during which no container may start."""
    has_metadata_server: bool = True
    """Whether pods get tokens of their own ServiceAccounts (GKE_METADATA); otherwise those of the machine."""


@dataclass(slots=True)
class Surroundings:
    """What all pods share."""

    api: Api
    directory: Path
    speed: float
    identities: Identities
    images: Images
    hosts: Mapping[str, str]
    """Pod DNS names (`hostname.subdomain`) of a namespace's pods -> address; changes all the time."""


class PodWorker:
    """Runs one pod from its assignment to its removal. `update` hands it the newest object."""

    def __init__(self, pod: Object, node: NodeContext, address: str, surroundings: Surroundings) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.node = node
        self.address = address
        self.directory = node.directory / "pods" / self.uid
        self._surroundings = surroundings
        self._references = References(surroundings.api, pod["metadata"]["namespace"])
        self.volumes = PodVolumes(
            self.directory, node.directory / "csi.sock", self._references.data, self._mount_problem
        )
        self._deleted = asyncio.Event()
        self._is_gone = False
        self._ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self._killers: list[asyncio.TimerHandle] = []
        self._reporter = PodReporter(surroundings.api, self)
        self.init = self._containers("initContainers", "initContainerStatuses")
        self.main = self._containers("containers", "containerStatuses")
        self.task = asyncio.get_running_loop().create_task(self._run())

    # What the kubelet tells it

    def update(self, pod: Object) -> None:
        """Takes the pod's newest object: deletion, a shortened grace period, changed annotations."""
        before, self.pod = self.pod, pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            if self._deleted.is_set() and grace < float(before["metadata"].get("deletionGracePeriodSeconds") or 0):
                self._kill_after(grace)
            self._deleted.set()
        is_changed = any(pod["metadata"].get(key) != before["metadata"].get(key) for key in ("labels", "annotations"))
        if is_changed and self.directory.exists():
            self.volumes.refresh(self.view)

    def removed(self) -> None:
        """The object is gone from the API (a forced deletion): nothing is reported any more."""
        self._is_gone = True
        self._reporter.stop()
        self._deleted.set()

    async def abandon(self) -> None:
        """Ends everything at once and without a word, as a lost machine does."""
        self.removed()
        self.task.cancel()
        for container in self._all():
            container.signal(signal.SIGKILL)
        await asyncio.gather(self.task, *(container.ended() for container in self._all()), return_exceptions=True)
        kill_marked(self._marker())

    @property
    def view(self) -> Object:
        """The pod with its addresses, as fieldRefs see it."""
        status = {**(self.pod.get("status") or {}), "podIP": self.address, "hostIP": self.node.address}
        return {**self.pod, "status": status}

    @property
    def phase(self) -> str:
        known = (self.pod.get("status") or {}).get("phase")
        if known in ("Succeeded", "Failed"):
            return str(known)
        return phase(self.pod, self.states(self.init), self.states(self.main), ended=self._ended)

    @staticmethod
    def states(containers: Mapping[str, Container]) -> dict[str, ContainerState]:
        return {name: container.state for name, container in containers.items()}

    # Its life

    async def _run(self) -> None:
        if self.pod["metadata"].get("deletionTimestamp"):
            self._deleted.set()
        if not self._ended:
            await self._until_ended()
        self._ended = True
        await self._reporter.flush()
        await self._deleted.wait()
        await self._reporter.flush()
        await self.volumes.unmount(self.pod)
        if not self._is_gone:
            await self._reporter.confirm_removal()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def _until_ended(self) -> None:
        """Runs the pod until it ends by itself or is deleted; afterwards no process of it is left."""
        living = asyncio.create_task(self._live())
        deletion = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait({living, deletion}, return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()
        finally:
            for task in (living, deletion):
                task.cancel()
            await asyncio.gather(living, deletion, return_exceptions=True)
        await self._stop()

    async def _live(self) -> None:
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        self._reporter.changed()
        await self._mount()
        sidecars: list[asyncio.Task[int]] = []
        try:
            for name, container in self.init.items():
                if is_sidecar(container.spec):
                    sidecars.append(asyncio.create_task(container.run()))
                    await container.is_started.wait()
                elif await container.run() != 0:
                    logger.info("init container %s of %s failed", name, self.pod["metadata"]["name"])
                    return
            mains = [asyncio.create_task(container.run()) for container in self.main.values()]
            try:
                await asyncio.gather(*mains)
            finally:
                await _cancelled(mains)
        finally:
            await _cancelled(sidecars)

    async def _mount_problem(self, bucket: str) -> str | None:
        return await self._surroundings.identities.mount_problem(
            self.pod, bucket, has_metadata_server=self.node.has_metadata_server
        )

    async def _mount(self) -> None:
        delay = _FIRST_MOUNT_RETRY
        while True:
            try:
                await self._references.fetch(self.pod)
                await self.volumes.mount(self.view)
                return
            except (MountError, environment.ConfigError) as error:
                self._reporter.event("Warning", "FailedMount", f"MountVolume.SetUp failed {error}")
            await asyncio.sleep(delay / self._surroundings.speed)
            delay = min(2 * delay, _LONGEST_MOUNT_RETRY)

    async def _stop(self) -> None:
        """SIGTERM to the main containers, then to sidecars in reverse; all are killed when the grace is over."""
        running = [container for container in self.main.values() if container.state.is_running]
        beside = [container for container in reversed(self.init.values()) if container.state.is_running]
        if not running and not beside:
            return
        metadata = self.pod["metadata"]
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        if metadata.get("deletionTimestamp"):
            grace = metadata.get("deletionGracePeriodSeconds") or 0
        self._kill_after(float(grace))
        for container in running:
            self._reporter.event("Normal", "Killing", f"Stopping container {container.state.name}")
            container.signal(signal.SIGTERM)
        await asyncio.gather(*(container.ended() for container in running))
        for container in beside:
            container.signal(signal.SIGTERM)
            await container.ended()
        for killer in self._killers:
            killer.cancel()

    def _kill_after(self, seconds: float) -> None:
        def kill() -> None:
            for container in self._all():
                container.signal(signal.SIGKILL)

        self._killers.append(asyncio.get_running_loop().call_later(seconds, kill))

    # Its containers

    def _containers(self, key: str, statuses: str) -> dict[str, Container]:
        status = self.pod.get("status") or {}
        known = {entry["name"]: entry for entry in status.get(statuses) or ()}
        return {
            spec["name"]: self._container(spec, key == "initContainers", known.get(spec["name"]))
            for spec in self.pod["spec"].get(key) or ()
        }

    def _container(self, spec: Object, is_init: bool, status: Object | None) -> Container:
        was_started = log_path(self.directory, spec["name"]).exists()
        return Container(
            spec,
            recorded_state(spec, status, was_started=was_started),
            restarts_after=self._restart_rule(spec, is_init),
            start=self._start,
            changed=self._reporter.changed,
            address=self.address,
            directory=self.directory,
            speed=self._surroundings.speed,
            report=self._reporter.event,
        )

    def _restart_rule(self, spec: Object, is_init: bool) -> Callable[[int], bool]:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if is_sidecar(spec):
            return lambda code: True
        if policy == "Never":
            return lambda code: False
        if policy == "OnFailure" or is_init:
            return lambda code: code != 0
        return lambda code: True

    async def _start(self, container: Object) -> ContainerProcess:
        await self.node.may_start.wait()
        self._surroundings.images.check(str(container.get("image") or ""))
        await self._references.fetch(self.pod)
        rewriter = Rewriter(mounts(container, self.volumes.paths), self._surroundings.hosts)
        declared = environment.declared(self.view, container, self._references.data)
        words = environment.command_line(container, declared, rewriter)
        injected = await self._surroundings.identities.variables(
            self.pod, has_metadata_server=self.node.has_metadata_server
        )
        variables = {
            **environment.base(self.pod, self.directory),
            "JAX_PLATFORMS": "cpu",
            **{name: rewriter.text(value) for name, value in declared.items()},
            **injected,
        }
        working = Path(rewriter.text(container["workingDir"])) if container.get("workingDir") else self.directory
        return await ContainerProcess.start(
            words,
            variables,
            working,
            log_path(self.directory, container["name"]),
            f"{self._marker()}{container['name']}|",
        )

    def _marker(self) -> str:
        return f"{self._surroundings.directory}|{self.uid}|"

    def _all(self) -> list[Container]:
        return [*self.main.values(), *self.init.values()]


async def _cancelled(tasks: list[asyncio.Task[int]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
