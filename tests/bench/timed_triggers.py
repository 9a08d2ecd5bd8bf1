"""The triggers that are compared, as they are, but for a note of when each begins and of when it yields its event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent
from tests.bench.notes import note

from everstep.watch.triggers import TrainingTrigger


class TimedTraining(TrainingTrigger):
    """Everstep's wait."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.run_name)
        async for event in super().run():
            note("fired", self.run_name, kind=event.payload["kind"])
            yield event


class TimedJob(KubernetesJobTrigger):
    """The provider's wait."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.job_name)
        async for event in super().run():
            note("fired", self.job_name, kind=event.payload["status"])
            yield event


class Sleeping(BaseTrigger):
    """A wait for nothing, which costs what Airflow itself costs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (f"{type(self).__module__}.{type(self).__qualname__}", {"name": self.name})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.name)
        await asyncio.Event().wait()
        yield TriggerEvent({})
