"""The machines behind the nodes: registration, heartbeats, loss, and repair by the cloud."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp

from everstep_sandbox import nodes
from everstep_sandbox.kubelet.api import MERGE, Api, ApiFailure
from everstep_sandbox.kubelet.kubelet import Kubelet
from everstep_sandbox.kubelet.volumes import checkpoint_volumes
from everstep_sandbox.nodes import TERMINATION_TAINT, Machine

logger = logging.getLogger(__name__)

Object = dict[str, Any]

HEARTBEAT_SECONDS = 10.0
"""Between renewals of a node's lease, before the sandbox's speed."""
REPAIR_SECONDS = 600.0
"""From the loss of a host to the return of its pool, before the sandbox's speed."""
SLICE_DOWN_SECONDS = 30.0
"""From the loss of a host to the rest of its slice being taken down, before the sandbox's speed."""

_DRIVER_NAMESPACE = "gke-managed-checkpointing"
_MOST_MACHINES = 250
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RETRY_SECONDS = 0.3


class FleetError(Exception):
    """A fault that can't be done as asked; the text says why and what would do."""


class Fleet:
    """All machines of the sandbox, with their record on disk."""

    def __init__(
        self, api: Api, kubelet: Kubelet, directory: Path, *, speed: float, log_port: int | None = None
    ) -> None:
        """`log_port` is where each node serves its containers' logs, at its own address."""
        self._api = api
        self._kubelet = kubelet
        self._directory = directory
        self._record = directory / "machines.json"
        self._machines = {machine.name: machine for machine in nodes.load(self._record)}
        self._speed = speed
        self._log_port = log_port
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Registers the machines, renews their leases and does what falls due, for ever."""
        async with asyncio.TaskGroup() as group:
            for machine in self._machines.values():
                if machine.state == "running":
                    group.create_task(self._register(machine))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._do_what_is_due())

    # Faults

    async def lose_node(self, name: str, repair_after: float | None = None) -> Object:
        """One host is lost: its processes, its disks, its Node; then the rest of its slice goes; later all return."""
        lost = self._machine(name)
        rest = [machine for machine in self._pool(lost.pool) if machine is not lost and machine.state == "running"]
        now = time.time()
        repair_at = now + self._repair_seconds(repair_after)
        lost.repair_at = repair_at
        await self._take_down(lost)
        for machine in rest:
            machine.down_at = now + SLICE_DOWN_SECONDS / self._speed
            machine.repair_at = repair_at
            await self._taint(machine)
        self._save()
        return {"gone": [lost.name], "going": [machine.name for machine in rest], "repair_in": repair_at - now}

    async def silence_node(self, name: str, repair_after: float | None = None) -> Object:
        """One host is lost without a word: its processes end, its Node stays and turns NotReady."""
        machine = self._machine(name)
        machine.state = "silent"
        machine.repair_at = time.time() + self._repair_seconds(repair_after)
        self._save()
        await self._kubelet.lose(machine.name)
        return {"silent": [name], "repair_in": self._repair_seconds(repair_after)}

    async def lose_pool(self, pool: str, repair_after: float | None = None) -> Object:
        """A whole slice is lost at once, as by preemption of its machines."""
        machines = [machine for machine in self._pool(pool) if machine.state != "gone"]
        if not machines:
            known = ", ".join(sorted({machine.pool for machine in self._machines.values()}))
            raise FleetError(f"Pool {pool!r} has no machine that is there; the pools are {known}")
        repair_at = time.time() + self._repair_seconds(repair_after)
        for machine in machines:
            machine.repair_at = repair_at
        await asyncio.gather(*(self._take_down(machine) for machine in machines))
        self._save()
        return {"gone": [machine.name for machine in machines], "repair_in": self._repair_seconds(repair_after)}

    async def wipe_ram(self, names: list[str]) -> Object:
        """Memory of these machines (all if none is named) is lost: training and drivers are killed, disks emptied."""
        machines = [self._machine(name) for name in names] or [
            machine for machine in self._machines.values() if machine.state == "running"
        ]
        contexts = [self._kubelet.context(machine.name) for machine in machines]
        for context in contexts:
            context.may_start.clear()
        try:
            ending = []
            for worker in (worker for context in contexts for worker in self._kubelet.workers(context.name)):
                is_driver = worker.pod["metadata"]["namespace"] == _DRIVER_NAMESPACE
                if is_driver or checkpoint_volumes(worker.pod):
                    for container in (*worker.main.values(), *worker.init.values()):
                        if container.signal(signal.SIGKILL) and container.process:
                            ending.append(container.process.exited)
            await asyncio.gather(*(asyncio.shield(exit_) for exit_ in ending))
            for context in contexts:
                shutil.rmtree(context.directory / "ramdisk", ignore_errors=True)
        finally:
            for context in contexts:
                context.may_start.set()
        return {"wiped": [context.name for context in contexts], "killed": len(ending)}

    async def break_tokens(self, undo: bool) -> Object:
        """No pod gets a token of its ServiceAccount from now on; drivers are started again, and wait for theirs."""
        self._kubelet.identities.are_broken = not undo
        return {"tokens": "given" if undo else "refused", "restarted": await self._restart_drivers()}

    async def restart_drivers(self) -> Object:
        """The checkpoint drivers' pods are deleted: new ones mount their bucket anew."""
        return {"restarted": await self._restart_drivers()}

    def lose_image(self, image: str, undo: bool) -> Object:
        """Images that match can't be pulled from now on; with `undo` all are there again."""
        images = self._kubelet.images
        if undo:
            images.missing.clear()
        else:
            images.missing.append(image)
        return {"missing": images.missing}

    async def _restart_drivers(self) -> int:
        drivers = [
            worker.pod["metadata"]["name"]
            for worker in self._kubelet.workers()
            if worker.pod["metadata"]["namespace"] == _DRIVER_NAMESPACE
        ]
        for name in drivers:
            with contextlib.suppress(ApiFailure):
                await self._api.delete(f"/api/v1/namespaces/{_DRIVER_NAMESPACE}/pods/{name}")
        return len(drivers)

    async def kill_pod(self, namespace: str, name: str, number: int) -> Object:
        """Sends a signal to the main containers of a pod."""
        for worker in self._kubelet.workers():
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                signalled = [key for key, container in worker.main.items() if container.signal(number)]
                if not signalled:
                    raise FleetError(f"Pod {namespace}/{name} has no running container (it is {worker.phase})")
                return {"pod": f"{namespace}/{name}", "signal": number, "containers": signalled}
        raise FleetError(f"No machine runs a pod {namespace}/{name}; see kubectl get pods -A -o wide")

    # Node pools

    async def resize(self, wanted: list[Object]) -> Object:
        """Makes the machines those that are named (name, pool, kind): others go, new ones come, changed ones anew."""
        asked = {one["name"]: one for one in wanted}
        for machine in list(self._machines.values()):
            one = asked.get(machine.name)
            if one is None or one["kind"] != machine.kind:
                if machine.state != "gone":
                    await self._take_down(machine)
                del self._machines[machine.name]
        numbers = set(range(_MOST_MACHINES)) - {machine.number for machine in self._machines.values()}
        new = [one for one in wanted if one["name"] not in self._machines]
        if len(new) > len(numbers):
            raise FleetError(f"{len(wanted)} machines are too many: the sandbox has addresses for {_MOST_MACHINES}")
        made = [
            Machine(one["name"], one["pool"], number, kind=one["kind"])
            for one, number in zip(new, sorted(numbers), strict=False)
        ]
        for machine in made:
            self._machines[machine.name] = machine
            self._kubelet.add(machine)
        self._save()
        async with asyncio.TaskGroup() as group:
            for machine in made:
                group.create_task(self._register(machine))
        return {"machines": sorted(self._machines), "made": [machine.name for machine in made]}

    # The cloud's side

    async def _take_down(self, machine: Machine) -> None:
        machine.state = "gone"
        machine.down_at = None
        self._save()
        await self._kubelet.lose(machine.name)
        shutil.rmtree(machine.directory(self._directory), ignore_errors=True)
        for path in (f"/api/v1/nodes/{machine.name}", f"{_LEASES}/{machine.name}"):
            with contextlib.suppress(ApiFailure):
                await self._api.delete(path)

    async def _taint(self, machine: Machine) -> None:
        path = f"/api/v1/nodes/{machine.name}"
        taints = (await self._api.get(path))["spec"].get("taints") or []
        taints = [taint for taint in taints if taint["key"] != TERMINATION_TAINT]
        taints.append({"key": TERMINATION_TAINT, "effect": "NoSchedule"})
        await self._api.patch(path, {"spec": {"taints": taints}}, kind=MERGE)

    async def _do_what_is_due(self) -> None:
        while True:
            now = time.time()
            for machine in list(self._machines.values()):
                if machine.down_at is not None and machine.down_at <= now:
                    await self._take_down(machine)
                if machine.state != "running" and machine.repair_at is not None and machine.repair_at <= now:
                    await self._repair(machine)
            times = [
                moment
                for machine in self._machines.values()
                for moment in (machine.down_at, machine.repair_at)
                if moment is not None
            ]
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(times) - time.time(), 0.05) if times else None):
                    await self._changed.wait()

    async def _repair(self, machine: Machine) -> None:
        if machine.state == "silent":
            # The cloud makes the machine anew: what was bound to the old one must be gone first.
            await self._take_down(machine)
        logger.info("machine %s is back, empty", machine.name)
        machine.state, machine.repair_at, machine.down_at = "running", None, None
        self._save()
        await self._register(machine)

    # The node's side

    async def _register(self, machine: Machine) -> None:
        context = self._kubelet.context(machine.name)
        context.directory.mkdir(parents=True, exist_ok=True)
        body = nodes.node_object(machine)
        body["status"]["addresses"] = [
            {"type": "InternalIP", "address": context.address},
            {"type": "Hostname", "address": machine.name},
        ]
        body["status"]["conditions"] = _conditions()
        if self._log_port is not None:
            body["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._log_port}}
        while True:
            try:
                await self._create_node(body)
                await self._renew(machine)
                break
            except (ApiFailure, aiohttp.ClientError, OSError, TimeoutError) as error:
                logger.info("registration of %s is tried again: %s", machine.name, error)
            await asyncio.sleep(_RETRY_SECONDS)
        self._kubelet.arrive(machine.name)

    async def _create_node(self, body: Object) -> None:
        try:
            await self._api.create("/api/v1/nodes", body)
        except ApiFailure as failure:
            if failure.code != 409:
                raise
        await self._api.patch(f"/api/v1/nodes/{body['metadata']['name']}/status", {"status": body["status"]})

    async def _beat(self) -> None:
        while True:
            began = time.monotonic()
            present = [machine for machine in self._machines.values() if machine.state == "running"]
            with contextlib.suppress(ApiFailure, aiohttp.ClientError, OSError, TimeoutError):
                for machine in present:
                    if machine.name in self._machines:
                        await self._renew(machine)
                await self._correct_conditions({machine.name for machine in present})
            await asyncio.sleep(max(0.0, HEARTBEAT_SECONDS / self._speed - (time.monotonic() - began)))

    async def _correct_conditions(self, present: set[str]) -> None:
        """Posts the status of nodes that the control plane took for unreachable (it or we had been away)."""
        for node in (await self._api.get("/api/v1/nodes"))["items"]:
            name, conditions = node["metadata"]["name"], node["status"].get("conditions") or ()
            is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
            if name in present and not is_ready:
                await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": _conditions()}})

    async def _renew(self, machine: Machine) -> None:
        renewed = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": machine.name, "leaseDurationSeconds": 40, "renewTime": renewed}
        try:
            await self._api.patch(f"{_LEASES}/{machine.name}", {"spec": spec}, kind=MERGE)
        except ApiFailure as failure:
            if failure.code != 404:
                raise
            await self._api.create(
                _LEASES,
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": machine.name},
                    "spec": spec,
                },
            )

    def _machine(self, name: str) -> Machine:
        machine = self._machines.get(name)
        if machine is None:
            raise FleetError(f"There is no machine {name!r}; the machines are {', '.join(sorted(self._machines))}")
        if machine.state != "running":
            raise FleetError(f"Machine {name} is {machine.state} already")
        return machine

    def _pool(self, pool: str) -> list[Machine]:
        return [machine for machine in self._machines.values() if machine.pool == pool]

    def _repair_seconds(self, asked: float | None) -> float:
        return (REPAIR_SECONDS if asked is None else asked) / self._speed

    def _save(self) -> None:
        nodes.save(self._record, list(self._machines.values()))
        self._changed.set()


def _conditions() -> list[Object]:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason, message in wanted
    ]
