"""The kubelet of all nodes: follows the pods that are assigned to them and keeps a worker for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everstep_sandbox.kubelet.addresses import Network, NodeAddresses
from everstep_sandbox.kubelet.api import Api
from everstep_sandbox.kubelet.identities import Identities
from everstep_sandbox.kubelet.images import Images
from everstep_sandbox.kubelet.pod_worker import NodeContext, PodWorker, Surroundings
from everstep_sandbox.kubelet.process import OrphanReaper, kill_marked
from everstep_sandbox.machine_kinds import METADATA_SERVER_LABEL
from everstep_sandbox.nodes import Machine

logger = logging.getLogger(__name__)

Object = dict[str, Any]

_REAP_SECONDS = 5.0


class Kubelet:
    """Pods of all machines. A machine that is not present has no workers: its pods are nobody's."""

    def __init__(
        self,
        api: Api,
        directory: Path,
        machines: list[Machine],
        network: Network,
        *,
        speed: float,
        storage: str,
    ) -> None:
        self._directory = directory
        self._hosts: dict[str, str] = {}
        self.identities = Identities(directory, storage)
        self.images = Images()
        self._surroundings = Surroundings(api, directory, speed, self.identities, self.images, self._hosts)
        self._api = api
        self._contexts: dict[str, NodeContext] = {}
        self._addresses: dict[str, NodeAddresses] = {}
        self._present: set[str] = set()
        self._workers: dict[str, PodWorker] = {}
        self._pods: dict[str, Object] = {}
        """All pods that are assigned to one of our machines, by uid, also to one that is not present."""
        self._network = network
        for machine in machines:
            self.add(machine)
        # Containers of an earlier kubelet ended with it; what they started may not have.
        kill_marked(f"{directory}|")

    def add(self, machine: Machine) -> None:
        """Makes a machine known; `arrive` says that it is there."""
        addresses = self._network.node(machine.number)
        may_start = asyncio.Event()
        may_start.set()
        self._addresses[machine.name] = addresses
        self._contexts[machine.name] = NodeContext(
            machine.name,
            addresses.node,
            machine.directory(self._directory),
            may_start,
            has_metadata_server=METADATA_SERVER_LABEL
            in ((machine.kind or {}).get("labels") or {METADATA_SERVER_LABEL}),
        )

    async def run(self) -> None:
        """Follows the API for ever."""
        asyncio.get_running_loop().create_task(self._reap())
        async for event in self._api.follow("/api/v1/pods"):
            if event.type == "RESET":
                self._reset(event.items)
            elif event.type == "DELETED":
                self._forget(event.object["metadata"]["uid"])
            else:
                self._see(event.object)

    def context(self, machine: str) -> NodeContext:
        return self._contexts[machine]

    def workers(self, machine: str | None = None) -> list[PodWorker]:
        """Workers of one machine, or of all."""
        return [worker for worker in self._workers.values() if machine in (None, worker.node.name)]

    def arrive(self, machine: str) -> None:
        """The machine is there (again): its pods are taken up."""
        self._present.add(machine)
        for pod in list(self._pods.values()):
            if pod["spec"]["nodeName"] == machine:
                self._see(pod)

    async def lose(self, machine: str) -> None:
        """The machine is gone: its processes are killed, and nobody speaks for its pods."""
        self._present.discard(machine)
        lost = self.workers(machine)
        await asyncio.gather(*(worker.abandon() for worker in lost))
        for worker in lost:
            self._drop(worker)

    async def stop(self) -> None:
        """Ends every container at once, without a report."""
        await asyncio.gather(*(worker.abandon() for worker in self._workers.values()))

    def _reset(self, pods: tuple[Object, ...]) -> None:
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self._pods if uid not in present]:
            self._forget(uid)
        for pod in pods:
            self._see(pod)

    def _see(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if node not in self._contexts:
            return
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        if uid in self._workers:
            self._workers[uid].update(pod)
        elif node in self._present:
            self._take_up(pod, node)

    def _take_up(self, pod: Object, node: str) -> None:
        address = self._addresses[node].take((pod.get("status") or {}).get("podIP"))
        for name in _host_names(pod):
            self._hosts[name] = address
        worker = PodWorker(pod, self._contexts[node], address, self._surroundings)
        self._workers[pod["metadata"]["uid"]] = worker
        worker.task.add_done_callback(lambda task: self._worker_ended(worker, task))

    def _worker_ended(self, worker: PodWorker, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("pod %s: worker failed", worker.pod["metadata"]["name"], exc_info=task.exception())
        self._drop(worker)

    def _drop(self, worker: PodWorker) -> None:
        """The worker stays known until its object is gone, or else the same pod would be run again."""
        self._addresses[worker.node.name].release(worker.address)
        for name in _host_names(worker.pod):
            if self._hosts.get(name) == worker.address:
                del self._hosts[name]
        if worker.uid not in self._pods or worker.node.name not in self._present:
            self._workers.pop(worker.uid, None)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        worker = self._workers.get(uid)
        if worker is not None:
            if worker.task.done():
                del self._workers[uid]
            else:
                worker.removed()

    async def _reap(self) -> None:
        reaper = OrphanReaper()
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            reaper.reap()


def _host_names(pod: Object) -> Iterator[str]:
    spec = pod["spec"]
    if spec.get("hostname") and spec.get("subdomain"):
        yield f"{spec['hostname']}.{spec['subdomain']}"
