"""The triggers of everything that provisioning waits for, and of preflight's try from the triggerer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
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


class ReachTrigger(BaseTrigger):
    """Tries the cluster's API from the triggerer, where the waits of the run will be, and fires once.

    The event has `findings`: those that were given, and what hinders here.

    :param cluster: a ClusterAccess as a dictionary; no secrets
    :param findings: what the worker found, as dictionaries
    """

    def __init__(
        self,
        *,
        cluster: Mapping[str, Any],
        findings: Sequence[Mapping[str, str]],
        dwell: float = DWELL_SECONDS,
    ) -> None:
        super().__init__()
        self.cluster = dict(cluster)
        self.findings = [dict(finding) for finding in findings]
        self.dwell = dwell

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, plain values only."""
        arguments = {"cluster": self.cluster, "findings": self.findings, "dwell": self.dwell}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Try, and yield one event."""
        started = time.monotonic()
        await loaded("everstep.clients.access")
        await loaded("everstep.provision.cloud.reachability")
        from everstep.clients.access import ClusterAccess
        from everstep.provision.cloud.reachability import tried

        found = await tried(ClusterAccess(**self.cluster), "from the triggerer")
        await asyncio.sleep(max(0.0, self.dwell - (time.monotonic() - started)))
        yield TriggerEvent({"findings": [*self.findings, *(finding.as_dict() for finding in found)]})
