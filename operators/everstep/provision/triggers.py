"""The trigger of everything that provisioning waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from everstep.watch.late_imports import loaded
from everstep.watch.triggers import DWELL_SECONDS


class ProvisioningTrigger(BaseTrigger):
    """Fires once, when what is waited for has ended or the deadline has passed.

    The event has `kind` (done, failed, deadline, error), `message`, and the `report` that was given.

    :param waiting: a `Waiting` as plain data
    :param access: what `Site.access()` gave; no secrets
    :param report: what was done before, handed back in the event
    :param deadline: seconds since the epoch
    """

    def __init__(
        self,
        *,
        waiting: Mapping[str, Any],
        access: Mapping[str, Any],
        report: Mapping[str, Any],
        deadline: float,
        dwell: float = DWELL_SECONDS,
    ) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {
            "waiting": dict(waiting),
            "access": dict(access),
            "report": dict(report),
            "deadline": deadline,
            "dwell": dwell,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, plain values only."""
        return f"{type(self).__module__}.{type(self).__qualname__}", dict(self.arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        started = time.monotonic()
        await loaded("everstep.provision.waits")
        from everstep.provision.changes import Waiting
        from everstep.provision.waits import wait_for

        waiting = Waiting.of(self.arguments["waiting"])
        event = await wait_for(waiting, self.arguments["access"], self.arguments["deadline"])
        await asyncio.sleep(max(0.0, float(self.arguments["dwell"]) - (time.monotonic() - started)))
        yield TriggerEvent({**event, "report": self.arguments["report"]})
