"""What provisioning waits for, by kind, and how each is waited for: the same code in a trigger and on the command line.

A kind is a class `(arguments, access)` with a coroutine `outcome()` that returns words for how it ended, and raises
FindingsError when it has failed for good. It polls without blocking the event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from typing import Any, Protocol

from everstep.clients.errors import RemoteError
from everstep.provision.changes import Waiting
from everstep.spec.findings import FindingsError

KINDS: dict[str, str] = {
    "operation": "everstep.provision.cloud.waiting:Operation",
    "cluster": "everstep.provision.cloud.waiting:SettledCluster",
    "configuration_gone": "everstep.provision.in_cluster.waits:ConfigurationGone",
    "deployment_available": "everstep.provision.in_cluster.waits:DeploymentAvailable",
    "driver_ready": "everstep.provision.in_cluster.waits:DriverReady",
    "kind_served": "everstep.provision.in_cluster.waits:KindServed",
    "run_saved": "everstep.provision.upgrade_saves:RunSaved",
    "run_stopped": "everstep.provision.upgrade_saves:RunStopped",
}
"""Kind -> `module:class`; imported when it is waited for."""


class Wait(Protocol):
    """Something that is waited for. One that has an attribute `standing` tells in it how things stood last."""

    async def outcome(self) -> str:
        """Wait for the end, and say how it ended. Raises FindingsError when it has failed."""
        ...


async def wait_for(waiting: Waiting, access: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Wait, and return an event: `kind` (done, failed, deadline, error), `message`, and of a failure its findings.

    :param access: what `Site.access()` gave
    :param deadline: seconds since the epoch
    """
    module, _, name = KINDS[waiting.kind].partition(":")
    wait: Wait = getattr(await asyncio.to_thread(importlib.import_module, module), name)(waiting.arguments, access)
    try:
        # A wait that begins after its deadline, because the triggerer was away, still looks once.
        async with asyncio.timeout(max(deadline - time.time(), 30.0)):
            return {"kind": "done", "message": await wait.outcome()}
    except TimeoutError:
        standing = getattr(wait, "standing", "")
        text = f"{waiting.what} took more than {waiting.seconds:.0f} s"
        return {"kind": "deadline", "message": f"{text}: {standing}" if standing else text}
    except FindingsError as failure:
        findings = [finding.as_dict() for finding in failure.findings]
        return {"kind": "failed", "message": str(failure), "title": failure.title, "findings": findings}
    except RemoteError as failure:
        return {"kind": "error", "message": failure.message}
