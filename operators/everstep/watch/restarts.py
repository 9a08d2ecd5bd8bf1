"""Why a run restarted: inquiries that one wait makes while it goes on listening.

They take several requests, and so long that the run may end meanwhile; so they run beside the wait, one after the
other, and what they find comes to the wait's inbox.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import StorageAccess
from everstep.clients.errors import NotFound, RemoteError
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import NODES
from everstep.clients.sharing import shared_bucket
from everstep.watch import classifier, progress
from everstep.watch.classifier import CauseKind
from everstep.watch.failed_pods import LOOKS, failed_pods, has_pods
from everstep.watch.inbox import Inbox
from everstep.watch.pods import PodState
from everstep.watch.progress import AttemptEnd

# Asking for each of so many nodes is cheaper than reading all of a cluster's.
FEW_NODES = 4
# Slices of a large run stop being ready one by one: not each of them is a reason to read its pods.
COLLECT_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stuck:
    """The run fails in the same way again and again."""

    message: str


@dataclass(frozen=True, slots=True)
class NoPods:
    """The attempt has not a single pod: what refuses them is why it does not start."""

    attempt: int


@dataclass
class Restarts:
    """The inquiries of one wait. `ends` are the ends of its last two attempts."""

    client: AsyncKubernetesClient
    storage: StorageAccess
    folder: RunFolder
    namespace: str
    launch: int
    inbox: Inbox
    log: logging.Logger | Any
    ends: list[AttemptEnd] = field(default_factory=list)
    _failed: dict[int, dict[str, PodState]] = field(default_factory=dict)
    _collected: dict[int, float] = field(default_factory=dict)
    _asked: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    def collect(self, attempt: int, pods: int) -> None:
        """Keep what the failed pods of the attempt that is going down say."""
        now = time.monotonic()
        if now - self._collected.get(attempt, -COLLECT_EVERY_SECONDS) >= COLLECT_EVERY_SECONDS:
            self._collected[attempt] = now
            self._ask(lambda: self._collect(attempt, pods, LOOKS))

    def judge(self, attempt: int, pods: int) -> None:
        """Find out how an attempt ended; tells Stuck when it ended as the one before, without getting further."""
        self._ask(lambda: self._judge(attempt, pods))

    def confirm_no_pods(self, attempt: int) -> None:
        """Tell NoPods if an attempt has none."""
        self._ask(lambda: self._confirm(attempt))

    async def stop(self) -> None:
        """End the inquiries."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ask(self, inquiry: Callable[[], Awaitable[None]]) -> None:
        self._asked.append(inquiry)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"everstep-inquiries-{self.folder.run}")

    async def _work(self) -> None:
        while self._asked:
            try:
                await self._asked.pop(0)()
            except RemoteError as failure:
                self.log.info("What happened to the run can't be read: %s", failure.message)
            except Exception:
                self.log.exception("What happened to the run can't be told")
        self._task = None

    async def _collect(self, attempt: int, pods: int, looks: int) -> None:
        found = await failed_pods(self.client, self.namespace, self.folder.run, attempt, pods=pods, looks=looks)
        for pod in found:
            self._failed.setdefault(attempt, {})[pod.uid] = pod

    async def _judge(self, attempt: int, pods: int) -> None:
        try:
            await self._collect(attempt, pods, looks=1 if self._failed.get(attempt) else LOOKS)
        except RemoteError as failure:
            self.log.info("Pods can't be read: %s", failure.message)
        failed = list(self._failed.pop(attempt, {}).values())
        self._collected.pop(attempt, None)
        reports = await self._reports(attempt)
        end = progress.end_of(self.launch, attempt, reports, classifier.classify(failed))
        if end.cause.kind in (CauseKind.PEER_LOST, CauseKind.UNKNOWN):
            names = {pod.node for pod in failed} | {str(report.get("node") or "") for report in reports}
            cause = await self._cause_in_nodes(names - {""})
            end = replace(end, cause=cause or end.cause)
        self.ends = [*self.ends[-1:], end]
        at = f" at step {end.last_step}" if end.last_step is not None else ""
        self.log.warning("Restart %d%s, because: %s", attempt + 1, at, end.cause)
        if progress.is_stuck(self.ends):
            self.inbox.put(Stuck(f"failed twice in the same way{at} without getting further: {end.cause}"))

    async def _confirm(self, attempt: int) -> None:
        if not await has_pods(self.client, self.namespace, self.folder.run, attempt):
            self.inbox.put(NoPods(attempt))

    async def _reports(self, attempt: int) -> list[dict[str, Any]]:
        try:
            async with shared_bucket(self.storage, self.folder.bucket) as bucket:
                return await bucket.run(run_folder.attempt(self.folder, self.launch, attempt))
        except RemoteError as failure:
            self.log.warning("The reports of restart %d can't be read: %s", attempt, failure.message)
            return []

    async def _cause_in_nodes(self, names: set[str]) -> classifier.Cause | None:
        if not names:
            return None
        try:
            nodes = await self._nodes(names)
        except RemoteError as failure:
            self.log.info("Nodes can't be read: %s", failure.message)
            return None
        return classifier.of_nodes(names, nodes)

    async def _nodes(self, names: set[str]) -> list[dict[str, Any]]:
        """Return those of the named nodes that there are, reduced to what is judged."""
        if len(names) > FEW_NODES:
            return (await self.client.list_reduced(NODES, None, lambda node: _reduced(node, names)))[0]
        found = []
        for name in sorted(names):
            try:
                found.append(await self.client.get(NODES, name))
            except NotFound:
                continue
        return found


def _reduced(node: dict[str, Any], names: set[str]) -> dict[str, Any] | None:
    name = node["metadata"]["name"]
    if name not in names:
        return None
    return {
        "metadata": {"name": name},
        "spec": {"taints": (node.get("spec") or {}).get("taints")},
        "status": {"conditions": (node.get("status") or {}).get("conditions")},
    }
