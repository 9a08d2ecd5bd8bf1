"""Following one JobSet to its end, and telling on the way what happens to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.errors import RemoteError
from everstep.clients.resources import EVENTS, NODES, PODS
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch import classifier, pending, progress, story
from everstep.watch import pods as pod_states
from everstep.watch.classifier import CauseKind
from everstep.watch.pods import PodState
from everstep.watch.progress import AttemptEnd
from everstep.watch.run_state import Phase, RunState
from everstep.watch.shared import Subscription, subscribed

Log = logging.Logger | Any
FAILED_POD_LOOKS = 6
FAILED_POD_PAUSE = 0.1


class WaitEnd(StrEnum):
    """Why a wait is over."""

    ENDED = "ended"
    GONE = "gone"
    NO_PROGRESS = "no_progress"
    NEVER_STARTS = "never_starts"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass
class Follower:
    """One wait.

    :param deadline: seconds since the epoch
    :param look_every: seconds between looks at status.json, and at pods that don't start
    :param give_start: seconds for which a run may be unable to start before the wait gives up
    :param give_answer: seconds beyond the deadline for which the cluster may leave the first question unanswered
    """

    access: ClusterAccess
    storage: StorageAccess
    bucket: str
    run: str
    namespace: str
    uid: str
    launch: int
    deadline: float
    log: Log
    look_every: float = 30.0
    give_start: float = 300.0
    give_answer: float = 300.0
    _state: RunState | None = None
    _failed_pods: dict[int, dict[str, PodState]] = field(default_factory=dict)
    _ends: list[AttemptEnd] = field(default_factory=list)
    _starting_since: float | None = None
    _told_pending: str = ""
    _told_restore: int = -1
    _told_progress: str = ""

    async def follow(self) -> dict[str, Any]:
        """Return how the wait ended: `kind` (a WaitEnd) and `message`. Raises RemoteError when it can't be known."""
        async with (
            self.storage.open_async(self.bucket) as bucket,
            subscribed(self.access, self.namespace, self.run) as subscription,
        ):
            while True:
                try:
                    async with asyncio.timeout(self._patience()):
                        state = await subscription.next()
                except TimeoutError:
                    end = self._late() or await self._look(subscription, bucket)
                else:
                    end = await self._changed(state, subscription, bucket)
                if end is not None:
                    return end

    def _patience(self) -> float:
        """Return how long to wait for the next state.

        The first one is waited for beyond the deadline, since a run that has ended in time is not late; but not for
        ever, since a cluster may never answer again.
        """
        remaining = self.deadline - time.time()
        if self._state is None:
            return max(0.0, remaining) + self.give_answer
        return max(0.0, min(self.look_every, remaining))

    def _late(self) -> dict[str, Any] | None:
        if time.time() < self.deadline:
            return None
        return _event(WaitEnd.DEADLINE, f"at the deadline: {self._state or 'the cluster does not answer'}")

    async def _changed(
        self, state: RunState | None, subscription: Subscription, bucket: AsyncBucketClient
    ) -> dict[str, Any] | None:
        before, self._state = self._state, state
        if state is None or state.uid != self.uid:
            return _event(WaitEnd.GONE, "the JobSet is gone")
        if before is None or _headline(before) != _headline(state):
            self.log.info("%s", state)
        if state.is_terminal:
            return _event(WaitEnd.ENDED, str(state))
        if before is not None and (state.restarts > before.restarts or state.ready_jobs < before.ready_jobs):
            await self._collect_failed_pods(subscription)
        if state.phase is not Phase.STARTING:
            self._starting_since = None
        elif self._starting_since is None or (before is not None and state.restarts > before.restarts):
            self._starting_since = time.monotonic()
        if before is not None and state.restarts > before.restarts:
            return await self._restarted(before.restarts, state, subscription, bucket)
        return None

    async def _restarted(
        self, attempt: int, state: RunState, subscription: Subscription, bucket: AsyncBucketClient
    ) -> dict[str, Any] | None:
        pods = list(self._failed_pods.pop(attempt, {}).values())
        seen = classifier.classify(pods)
        reports: list[dict[str, Any]] = []
        try:
            reports = await bucket.run(run_folder.attempt(RunFolder(self.bucket, self.run), self.launch, attempt))
        except RemoteError as failure:
            self.log.warning("The reports of restart %d can't be read: %s", attempt, failure.message)
        end = progress.end_of(self.launch, attempt, reports, seen)
        if end.cause.kind in (CauseKind.PEER_LOST, CauseKind.UNKNOWN):
            names = {pod.node for pod in pods} | {str(report.get("node") or "") for report in reports}
            cause = classifier.of_nodes(names - {""}, await self._nodes(subscription))
            end = replace(end, cause=cause or end.cause)
        self._ends = [*self._ends[-1:], end]
        at = f" at step {end.last_step}" if end.last_step is not None else ""
        self.log.warning("Restart %d%s, because: %s", state.restarts, at, end.cause)
        if progress.is_stuck(self._ends):
            return _event(
                WaitEnd.NO_PROGRESS,
                f"failed twice in the same way{at} without getting further: {end.cause}",
            )
        return None

    async def _look(self, subscription: Subscription, bucket: AsyncBucketClient) -> dict[str, Any] | None:
        if self._starting_since is None:
            await self._tell_progress(bucket)
            return None
        waited = time.monotonic() - self._starting_since
        pods = pod_states.of_attempt(await self._pods(subscription), self._state.restarts if self._state else 0)
        events, _ = await subscription.client.list_all(EVENTS, self.namespace, fields="reason=FailedCreate")
        told = "; ".join(pending.explain(pods, events, self.run))
        if told and told != self._told_pending:
            self._told_pending = told
            self.log.info("Not all slices run after %.0f s: %s", waited, told)
        cause = pending.never_starts(pods, events, self.run)
        if cause is not None and waited >= self.give_start:
            return _event(WaitEnd.NEVER_STARTS, f"can't start since {waited:.0f} s: {cause}")
        return None

    async def _tell_progress(self, bucket: AsyncBucketClient) -> None:
        try:
            records = await bucket.run(run_folder.records(RunFolder(self.bucket, self.run)))
            await self._tell_restore(bucket, int((records.get("run.json") or {}).get("nodes", 0)))
        except RemoteError as failure:
            self.log.info("Progress can't be read: %s", failure.message)
            return
        told = describe_status(records.get("status.json"), self.launch)
        if told != self._told_progress:
            self._told_progress = told
            self.log.info("%s: %s", self.run, told)

    async def _tell_restore(self, bucket: AsyncBucketClient, nodes: int) -> None:
        """Tell once per attempt what it restored, when all its nodes have reported."""
        restart = self._state.restarts if self._state is not None else 0
        if self._told_restore == restart:
            return
        reports = await bucket.run(run_folder.attempt(RunFolder(self.bucket, self.run), self.launch, restart))
        restored = [report for report in reports if report.get("restored_tier")]
        if not nodes or len(restored) < nodes:
            return
        self._told_restore = restart
        told = story.of_attempts({(self.launch, restart): restored})[0]
        before = self._ends[-1].last_step if self._ends else None
        lost = f"; {max(before - (told.restored_step or 0), 0)} steps to do again" if before is not None else ""
        self.log.info("Restart %d %s%s", restart, told.start, lost)

    async def _collect_failed_pods(self, subscription: Subscription) -> None:
        """Keep what failed pods say, since a restart deletes them.

        A slice stops being ready a moment before its pod has failed, so a look that finds none is repeated.
        """
        for _ in range(FAILED_POD_LOOKS):
            failed = [pod for pod in await self._pods(subscription) if pod.has_failed]
            for pod in failed:
                self._failed_pods.setdefault(pod.attempt, {})[pod.uid] = pod
            if failed:
                return
            await asyncio.sleep(FAILED_POD_PAUSE)

    async def _nodes(self, subscription: Subscription) -> list[dict[str, Any]]:
        try:
            return (await subscription.client.list_all(NODES))[0]
        except RemoteError as failure:
            self.log.info("Nodes can't be read: %s", failure.message)
            return []

    async def _pods(self, subscription: Subscription) -> list[PodState]:
        try:
            pods, _ = await subscription.client.list_all(PODS, self.namespace, labels=pending.selector(self.run))
        except RemoteError as failure:
            self.log.info("Pods can't be read: %s", failure.message)
            return []
        return [pod_states.of_pod(pod) for pod in pods]


def describe_status(status: Mapping[str, Any] | None, launch: int) -> str:
    """Return what status.json says of a launch, in words."""
    if status is None or status.get("launch") != launch:
        return "no report of this launch yet"
    told = str(status.get("phase", "training"))
    if status.get("step") is not None:
        told += f", step {status['step']}" + (f" of {status['final_step']}" if status.get("final_step") else "")
    if isinstance(status.get("loss"), float):
        told += f", loss {status['loss']:.4f}"
    return told


def _event(kind: WaitEnd, message: str) -> dict[str, Any]:
    return {"kind": kind.value, "message": message}


def _headline(state: RunState) -> tuple[Phase, int, int]:
    return (state.phase, state.restarts, state.ready_jobs)
