"""The provider's wait as it is, but for a note of when it begins and of when it yields its event."""

from __future__ import annotations

from collections.abc import AsyncIterator

from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger
from airflow.triggers.base import TriggerEvent
from tests.bench.notes import note


class TimedJob(KubernetesJobTrigger):
    """The provider's wait."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.job_name)
        async for event in super().run():
            note("fired", self.job_name, kind=event.payload["status"])
            yield event
