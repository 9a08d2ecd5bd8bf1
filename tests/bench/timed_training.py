"""Everstep's wait as it is, but for a note of when it begins and of when it yields its event."""

from __future__ import annotations

from collections.abc import AsyncIterator

from airflow.triggers.base import TriggerEvent
from tests.bench.notes import note

from everstep.watch.triggers import TrainingTrigger


class TimedTraining(TrainingTrigger):
    """Everstep's wait."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.run_name)
        async for event in super().run():
            note("fired", self.run_name, kind=event.payload["kind"])
            yield event
