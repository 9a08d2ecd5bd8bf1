"""The looks that sensors take from the triggerer: few requests each, at intervals with some chance in them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from everstep.checkpoints.catalogue import Shape
from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.errors import RemoteError
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch import run_state, story
from everstep.watch.triggers import DWELL_SECONDS

Found = tuple[dict[str, Any] | None, str]


class PollingTrigger(BaseTrigger):
    """Looks again and again until something is found or the deadline has passed. Subclasses say what to look for.

    The event has `kind` (found, deadline or error), `message`, and `result` when found.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, plain values only."""
        return f"{type(self).__module__}.{type(self).__qualname__}", dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        started = time.monotonic()
        event = await self.wait()
        await asyncio.sleep(max(0.0, float(self.arguments["dwell"]) - (time.monotonic() - started)))
        yield TriggerEvent(event)

    async def wait(self) -> dict[str, Any]:
        """Wait, and return the event's content."""
        try:
            return await self.look_until_found()
        except RemoteError as failure:
            return {"kind": "error", "message": failure.message}

    async def look_until_found(self) -> dict[str, Any]:
        """Open what is needed, look until found, and return the event's content."""
        raise NotImplementedError

    async def _repeat(self, look: Any) -> dict[str, Any]:
        told = ""
        while True:
            result, message = await look()
            if result is not None:
                return {"kind": "found", "message": message, "result": result}
            if message != told:
                told = message
                self.log.info("%s", message)
            remaining = float(self.arguments["deadline"]) - time.time()
            if remaining <= 0:
                return {"kind": "deadline", "message": message}
            interval = float(self.arguments["poke_interval"]) * random.uniform(0.9, 1.1)
            await asyncio.sleep(min(interval, remaining))


class CheckpointTrigger(PollingTrigger):
    """Fires when a complete checkpoint at `min_step` or above is in a run's folder."""

    def __init__(
        self,
        *,
        storage: Mapping[str, Any],
        bucket: str,
        run_name: str,
        nodes: int,
        data_parallelism: int,
        min_step: int,
        deadline: float,
        poke_interval: float,
        dwell: float = DWELL_SECONDS,
    ) -> None:
        super().__init__(
            storage=dict(storage),
            bucket=bucket,
            run_name=run_name,
            nodes=nodes,
            data_parallelism=data_parallelism,
            min_step=min_step,
            deadline=deadline,
            poke_interval=poke_interval,
            dwell=dwell,
        )
        self.folder = RunFolder(bucket, run_name)
        self.shape = Shape(nodes, 1, data_parallelism)
        self.min_step = min_step

    async def look_until_found(self) -> dict[str, Any]:
        """Look into the run's folder until a complete checkpoint is new enough."""
        async with StorageAccess(**self.arguments["storage"]).open_async(self.folder.bucket) as bucket:
            return await self._repeat(lambda: self._look(bucket))

    async def _look(self, bucket: AsyncBucketClient) -> Found:
        contents = await bucket.run(run_folder.contents(self.folder, self.shape, everything=False))
        good = contents.last_known_good
        if good is None:
            return None, f"no complete checkpoint in {self.folder.url()} yet"
        if good.step < self.min_step:
            return None, f"the newest complete checkpoint is step {good.step} ({good.tier} {good.name})"
        result = {"step": good.step, "tier": good.tier, "name": good.name}
        return result, f"step {good.step} is complete: {good.tier} {good.name}"


class RestoreTrigger(PollingTrigger):
    """Fires when all nodes of the present attempt have reported what they restored."""

    def __init__(
        self,
        *,
        cluster: Mapping[str, Any],
        storage: Mapping[str, Any],
        bucket: str,
        run_name: str,
        namespace: str,
        nodes: int,
        min_restart: int,
        deadline: float,
        poke_interval: float,
        dwell: float = DWELL_SECONDS,
    ) -> None:
        super().__init__(
            cluster=dict(cluster),
            storage=dict(storage),
            bucket=bucket,
            run_name=run_name,
            namespace=namespace,
            nodes=nodes,
            min_restart=min_restart,
            deadline=deadline,
            poke_interval=poke_interval,
            dwell=dwell,
        )
        self.folder = RunFolder(bucket, run_name)
        self.namespace = namespace
        self.nodes = nodes
        self.min_restart = min_restart

    async def look_until_found(self) -> dict[str, Any]:
        """Look at the JobSet and its attempt's reports until all nodes have restored."""
        async with (
            StorageAccess(**self.arguments["storage"]).open_async(self.folder.bucket) as bucket,
            ClusterAccess(**self.arguments["cluster"]).open_async() as cluster,
        ):
            return await self._repeat(lambda: self._look(cluster, bucket))

    async def _look(self, cluster: AsyncKubernetesClient, bucket: AsyncBucketClient) -> Found:
        found = await cluster.find(JOBSETS, self.folder.run, self.namespace)
        if found is None:
            return None, f"there is no JobSet {self.namespace}/{self.folder.run}"
        state = run_state.of_jobset(found)
        if state.restarts < self.min_restart or state.launch is None:
            return None, f"waiting for restart {self.min_restart}: {state}"
        reports = await bucket.run(run_folder.attempt(self.folder, state.launch, state.restarts))
        restored = [report for report in reports if report.get("restored_tier")]
        if len(restored) < self.nodes:
            where = f"launch {state.launch}, restart {state.restarts}"
            return None, f"{len(restored)} of {self.nodes} nodes have restored ({where})"
        told = story.of_attempts({(state.launch, state.restarts): restored})[0]
        result = {
            "launch": told.launch,
            "restart": told.restart,
            "step": told.restored_step,
            "tier": told.tier,
            "tiers": told.tiers,
        }
        return result, str(told)
