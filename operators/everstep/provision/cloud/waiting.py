"""Waiting for Google's long operations, whoever began them, and for clusters that GKE itself works on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from everstep.clients import errors
from everstep.clients.access import GoogleAccess
from everstep.clients.google_async import AsyncGoogleCloud
from everstep.spec.findings import FindingsError, error

Object = dict[str, Any]

POLL_SECONDS = 10.0
# What GKE's messages say, in brackets or words, and what helps.
_REMEDIES = {
    "STOCKOUT": "run it again later, or take capacity that is yours: a reservation, flex-start or another zone",
    "does not have enough resources": "run it again later, or take a reservation, flex-start or another zone",
    "QUOTA": "ask for quota: https://console.cloud.google.com/iam-admin/quotas, then run it again",
    "RESERVATION": "gcloud compute reservations list",
}


class Operation:
    """Kind `operation`: a long operation of GKE or of Service Usage.

    :param arguments: `service` (container or serviceusage) and `name`, the operation's whole name
    """

    def __init__(self, arguments: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        self.service = str(arguments["service"])
        self.name = str(arguments["name"])
        self.access = GoogleAccess(**access["google"])

    async def outcome(self) -> str:
        """Wait for its end. Raises FindingsError with the service's own message when it has failed."""
        async with await self.access.open_async() as google:
            for seconds in _polls():
                operation = await self._look(google)
                if operation is None:
                    # Operations are kept for a while only. The next look at the objects tells how it ended.
                    return f"{self.name} is not known any more"
                if operation.get("done") or operation.get("status") == "DONE":
                    return self._ended(operation)
                await asyncio.sleep(seconds)
        raise AssertionError("polls have no end")

    async def _look(self, google: AsyncGoogleCloud) -> Object | None:
        try:
            return await google.get(self.service, f"/v1/{self.name}")
        except errors.NotFound:
            return None

    def _ended(self, operation: Mapping[str, Any]) -> str:
        what = f"{operation.get('operationType') or 'operation'} {operation.get('name') or self.name}"
        failure = operation.get("error")
        if failure:
            message = str(failure.get("message") or operation.get("statusMessage") or f"error {failure.get('code')}")
            remedy = next((told for sign, told in _REMEDIES.items() if sign in message), "mend the cause, run it again")
            target = str(operation.get("targetLink") or "").partition("/v1/")[2]
            raise FindingsError(
                f"{what} failed", [error(target or what, message, "an operation that succeeds", remedy)]
            )
        return f"{what} is done"


class SettledCluster:
    """Kind `cluster`: a cluster that GKE works on without an operation that could be waited for.

    :param arguments: `project`, `location` and `name`
    """

    def __init__(self, arguments: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        self.name = str(arguments["name"])
        self.path = f"/v1/projects/{arguments['project']}/locations/{arguments['location']}/clusters/{self.name}"
        self.access = GoogleAccess(**access["google"])

    async def outcome(self) -> str:
        """Wait until neither the cluster nor one of its node pools is being changed."""
        async with await self.access.open_async() as google:
            for seconds in _polls():
                try:
                    cluster = await google.get("container", self.path)
                except errors.NotFound:
                    return f"cluster {self.name} is gone"
                if not is_unsettled(cluster):
                    return f"cluster {self.name} is {cluster.get('status')}"
                await asyncio.sleep(seconds)
        raise AssertionError("polls have no end")


def is_unsettled(cluster: Mapping[str, Any]) -> bool:
    """Say whether GKE is at work on a cluster or on one of its node pools."""
    moving = {"PROVISIONING", "RECONCILING", "STOPPING"}
    return any(each.get("status") in moving for each in (cluster, *(cluster.get("nodePools") or ())))


def _polls() -> Iterator[float]:
    """Return the seconds between looks: short ones first, for what ends at once."""
    seconds = 0.5
    while True:
        yield seconds
        seconds = min(POLL_SECONDS, seconds * 1.7)
