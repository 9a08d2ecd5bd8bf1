"""The triggers of sensors: their arguments; what they wait for is `everstep.watch.sensor_waits`.

Airflow imports this module in the triggerer's event loop, so what it needs comes in later, by a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from everstep.watch.late_imports import loaded
from everstep.watch.triggers import DWELL_SECONDS, starts

if TYPE_CHECKING:
    from everstep.watch.sensor_waits import Wait


class SensorTrigger(BaseTrigger):
    """Fires once, when what it is told is what it waits for, or the deadline has passed. Subclasses say what that is.

    The event has `kind` (found, deadline or error), `message`, and `result` when found. A trigger that starts after
    its deadline, because the triggerer was full or away, looks once before it says so.
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
        await starts.get().enter()
        await loaded("everstep.watch.sensor_waits")
        return await self.make_wait().outcome()

    def make_wait(self) -> Wait:
        """Return what is waited for."""
        raise NotImplementedError


class CheckpointTrigger(SensorTrigger):
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

    def make_wait(self) -> Wait:
        """Return what is waited for."""
        from everstep.watch.sensor_waits import CheckpointWait

        return CheckpointWait(self.arguments, self.log)


class RestoreTrigger(SensorTrigger):
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

    def make_wait(self) -> Wait:
        """Return what is waited for."""
        from everstep.watch.sensor_waits import RestoreWait

        return RestoreWait(self.arguments, self.log)
