"""Following one JobSet to its end, and telling on the way what happens to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.errors import RemoteError, Unavailable
from everstep.clients.resources import JOBSETS
from everstep.watch import pending, run_state, story
from everstep.watch import pods as pod_states
from everstep.watch.classifier import Cause
from everstep.watch.inbox import Inbox
from everstep.watch.progress import AttemptEnd
from everstep.watch.progress_looks import Progress, ProgressWait, progress_of
from everstep.watch.restarts import NoPods, Restarts, Stuck
from everstep.watch.run_state import Phase, RunState
from everstep.watch.shared import Subscription, subscribed
from everstep.watch.starting import Pending

Log = logging.Logger | Any
# A wait that missed more restarts than this, while the cluster was away, judges the last ones only.
MOST_RESTARTS_AT_ONCE = 3


class WaitEnd(StrEnum):
    """Why a wait is over."""

    ENDED = "ended"
    GONE = "gone"
    NO_PROGRESS = "no_progress"
    NEVER_STARTS = "never_starts"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass(slots=True)
class Follower:
    """One wait. It listens to its inbox: states of the JobSet come from the watch that all waits share, reports from
    shared looks at the bucket, and what takes requests of its own runs beside it. Only a JobSet that the watch does not
    know when the wait begins is asked for.

    :param deadline: seconds since the epoch
    :param look_every: seconds between looks at status.json, and at pods that don't start; longer where there are many
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
    _inbox: Inbox = field(default_factory=Inbox)
    _state: RunState | None = None
    _restarts: Restarts | None = None
    _starting_since: float | None = None
    _never: Cause | None = None
    _told_pending: str = ""
    _told_restore: int = -1
    _told_progress: str = ""

    async def follow(self) -> dict[str, Any]:
        """Return how the wait ended: `kind` (a WaitEnd) and `message`. Raises RemoteError when it can't be known."""
        folder = RunFolder(self.bucket, self.run)
        async with (
            progress_of(self.storage, folder, self._inbox, self.look_every) as reports,
            subscribed(self.access, self.namespace, self.run, self._inbox) as subscription,
        ):
            try:
                return await self._listen(subscription, reports)
            finally:
                subscription.watch.starting.remove(self._inbox)
                if self._restarts is not None:
                    await self._restarts.stop()

    async def _listen(self, subscription: Subscription, reports: ProgressWait) -> dict[str, Any]:
        while True:
            try:
                told = await self._inbox.take(self._patience())
                if self._state is None and self._is_gone(told) and await self._is_ahead(subscription):
                    continue
            except TimeoutError:
                return _event(WaitEnd.DEADLINE, f"at the deadline: {self._state or 'the cluster does not answer'}")
            end = self._heard(told, subscription)
            if end is not None:
                return end
            reports.attempt = self._untold_restore()

    @property
    def _ends(self) -> list[AttemptEnd]:
        return self._restarts.ends if self._restarts is not None else []

    def _patience(self) -> float:
        """Return how long to wait for the next thing told.

        The first state is waited for beyond the deadline, since a run that has ended in time is not late; but not for
        ever, since a cluster may never answer again.
        """
        remaining = max(0.0, self.deadline - time.time())
        return remaining + self.give_answer if self._state is None else remaining

    def _is_gone(self, told: Any) -> bool:
        return told is None or (isinstance(told, RunState) and told.uid != self.uid)

    async def _is_ahead(self, subscription: Subscription) -> bool:
        """Say whether the JobSet is there although the watch does not know it: it may be behind when a wait begins.

        Raises TimeoutError when there is no answer in time.
        """
        async with asyncio.timeout(self._patience()):
            while True:
                try:
                    found = await subscription.client.find(JOBSETS, self.run, self.namespace)
                    break
                except Unavailable:
                    continue
        state = None if found is None else run_state.of_jobset(found)
        return state is not None and state.uid == self.uid and subscription.watch.learn(state)

    def _heard(self, told: Any, subscription: Subscription) -> dict[str, Any] | None:
        if told is None or isinstance(told, RunState):
            return self._changed(told, subscription)
        if isinstance(told, RemoteError):
            raise told
        if isinstance(told, Progress):
            self._tell_progress(told)
        elif isinstance(told, Pending):
            return self._tell_pending(told, subscription)
        elif isinstance(told, Stuck):
            return _event(WaitEnd.NO_PROGRESS, told.message)
        elif isinstance(told, NoPods):
            return self._never_starts(told.attempt)
        return None

    def _changed(self, state: RunState | None, subscription: Subscription) -> dict[str, Any] | None:
        before, self._state = self._state, state
        if state is None or self._is_gone(state):
            return _event(WaitEnd.GONE, "the JobSet is gone")
        if before is None or _headline(before) != _headline(state):
            self.log.info("%s", state)
        if state.is_terminal:
            return _event(WaitEnd.ENDED, str(state))
        restarted = before is not None and state.restarts > before.restarts
        if before is not None and restarted:
            for attempt in range(max(before.restarts, state.restarts - MOST_RESTARTS_AT_ONCE), state.restarts):
                self._inquiries(subscription).judge(attempt, state.pods)
        elif before is not None and state.ready_jobs < before.ready_jobs:
            self._inquiries(subscription).collect(state.restarts, state.pods)
        if state.phase is not Phase.STARTING:
            self._starting_since = None
            subscription.watch.starting.remove(self._inbox)
        elif self._starting_since is None or restarted:
            self._starting_since = time.monotonic()
            subscription.watch.starting.add(self._inbox, self.run, self.look_every)
        return None

    def _inquiries(self, subscription: Subscription) -> Restarts:
        if self._restarts is None:
            self._restarts = Restarts(
                client=subscription.client,
                storage=self.storage,
                folder=RunFolder(self.bucket, self.run),
                namespace=self.namespace,
                launch=self.launch,
                inbox=self._inbox,
                log=self.log,
            )
        return self._restarts

    def _tell_pending(self, found: Pending, subscription: Subscription) -> dict[str, Any] | None:
        """Say what the run waits for; find out whether it waits in vain when it has for long enough."""
        state = self._state
        if self._starting_since is None or state is None:
            return None
        waited = time.monotonic() - self._starting_since
        if waited < self.look_every / 2:
            # The look was due for others.
            return None
        pods = pod_states.of_attempt(found.pods, state.restarts)
        told = "; ".join(pending.explain(pods, found.refusals, self.run, state.pods))
        if told and told != self._told_pending:
            self._told_pending = told
            self.log.info("Not all slices run after %.0f s: %s", waited, told)
        self._never = pending.never_starts(pods, found.refusals, self.run)
        if self._never is None or waited < self.give_start:
            return None
        if pods:
            return self._never_starts(state.restarts)
        # None is pending, but some may run; only if there is none at all do the refusals matter.
        self._inquiries(subscription).confirm_no_pods(state.restarts)
        return None

    def _never_starts(self, attempt: int) -> dict[str, Any] | None:
        if self._starting_since is None or self._never is None or self._state is None:
            return None
        if self._state.restarts != attempt:
            return None
        waited = time.monotonic() - self._starting_since
        return _event(WaitEnd.NEVER_STARTS, f"can't start since {waited:.0f} s: {self._never}")

    def _untold_restore(self) -> tuple[int, int] | None:
        restart = self._state.restarts if self._state is not None else 0
        return None if self._told_restore == restart else (self.launch, restart)

    def _tell_progress(self, found: Progress) -> None:
        if found.failure:
            self.log.info("Progress can't be read: %s", found.failure)
            return
        if found.restored is not None and found.attempt is not None and found.attempt == self._untold_restore():
            self._tell_restore(found.attempt, found.restored)
        if self._starting_since is not None:
            return
        told = describe_status(found.status, self.launch)
        if told != self._told_progress:
            self._told_progress = told
            self.log.info("%s: %s", self.run, told)

    def _tell_restore(self, attempt: tuple[int, int], restored: list[dict[str, Any]]) -> None:
        """Tell once per attempt what it restored, when all its nodes have reported."""
        self._told_restore = attempt[1]
        told = story.of_attempts({attempt: restored})[0]
        before = self._ends[-1].last_step if self._ends else None
        lost = f"; {max(before - (told.restored_step or 0), 0)} steps to do again" if before is not None else ""
        self.log.info("Restart %d %s%s", attempt[1], told.start, lost)


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
