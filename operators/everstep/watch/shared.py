"""One watch per cluster and namespace for any number of waits in one event loop.

A wait subscribes to the JobSet of one name and gets each of its states once and in order: first the present one (None
while there is no such JobSet), then every change, then None when it is deleted. States are compared by resource
version, so what a new list tells again is not told twice, and what changed while the watch was away is.

The watch starts with the first subscription and ends with the last one. Of each JobSet in the namespace it keeps a
RunState, about a kilobyte, so that a wait that comes later costs no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from everstep.clients.access import ClusterAccess
from everstep.clients.errors import Gone, RemoteError, Unavailable
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.clients.sharing import shared_cluster
from everstep.clients.watch_stream import Stalled
from everstep.watch import run_state
from everstep.watch.inbox import Inbox
from everstep.watch.reconnecting import Troubles
from everstep.watch.run_state import RunState
from everstep.watch.starting import StartingRuns

log = logging.getLogger(__name__)

# API servers send a bookmark every 60 to 75 s; a watch that is silent for longer has lost its connection.
SILENCE_SECONDS = 90.0
# Waits that are woken before others in the event loop get their turn.
TOLD_AT_ONCE = 25


@dataclass(eq=False, slots=True)
class Subscription:
    """One wait on one JobSet. `inbox` is told a RunState, None or a RemoteError."""

    name: str
    watch: SharedWatch
    inbox: Inbox = field(default_factory=Inbox)

    @property
    def client(self) -> AsyncKubernetesClient:
        """The cluster's client, which all waits share."""
        return self.watch.client

    async def next(self) -> RunState | None:
        """Return the next state, None when there is no such JobSet (any more).

        Raises RemoteError when the watch can't go on: refused credentials, no leave, no such kind of object.
        """
        told = await self.inbox.take()
        if isinstance(told, RemoteError):
            raise told
        assert told is None or isinstance(told, RunState)
        return told


class SharedWatch:
    """The watch on all JobSets of a namespace.

    :param silence: seconds without an event or a bookmark after which the connection counts as lost
    """

    def __init__(self, client: AsyncKubernetesClient, namespace: str, *, silence: float) -> None:
        self.client = client
        self.starting = StartingRuns(client, namespace)
        self._namespace = namespace
        self._silence = silence
        self._states: dict[str, RunState] = {}
        self._subscriptions: dict[str, list[Subscription]] = defaultdict(list)
        self._listed = False
        self._version = ""
        self._failure: RemoteError | None = None
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, name: str, inbox: Inbox | None = None) -> Subscription:
        """Add a wait on the JobSet of that name."""
        subscription = Subscription(name, self, inbox or Inbox())
        self._subscriptions[name].append(subscription)
        if self._listed:
            subscription.inbox.put(self._states.get(name))
        if self._failure is not None:
            subscription.inbox.put(self._failure)
        elif self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"everstep-watch-{self._namespace}")
        return subscription

    def unsubscribe(self, subscription: Subscription) -> bool:
        """Remove a wait. Return whether others are left."""
        waits = self._subscriptions[subscription.name]
        waits.remove(subscription)
        if not waits:
            del self._subscriptions[subscription.name]
        return bool(self._subscriptions)

    def learn(self, state: RunState) -> bool:
        """Take in a state that was read besides the watch, which may be behind. Return whether the JobSet is known now;
        it is not when the watch has seen its deletion since."""
        if _is_before(self._version, state.resource_version):
            self._states[state.name] = state
            self._tell(state.name, state)
            return True
        known = self._states.get(state.name)
        return known is not None and known.uid == state.uid

    async def stop(self) -> None:
        """End the watch, also if the caller is cancelled meanwhile; the client stays open."""
        if self._task is not None:
            self._task.cancel()
        await self.starting.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def has_failed(self) -> bool:
        """Say whether the watch has ended with an error; a new one may fare better."""
        return self._failure is not None

    async def _follow(self) -> None:
        try:
            await self._list_and_watch()
        except RemoteError as failure:
            self._end(failure)
        except Exception as failure:
            log.exception("The watch on JobSets of namespace %s broke", self._namespace)
            self._end(Unavailable(f"watch on JobSets of {self._namespace}: {type(failure).__name__}: {failure}"))

    async def _list_and_watch(self) -> None:
        version: str | None = None
        troubles = Troubles(self._namespace)
        while True:
            try:
                if version is None:
                    version = await self._list()
                version = await self._watch(version, troubles)
                await troubles.ended_plainly()
            except _Lost as lost:
                version = lost.version
                await troubles.sit_out(lost.failure, knows_us=self._listed)
            except RemoteError as failure:
                await troubles.sit_out(failure, knows_us=self._listed)

    async def _list(self) -> str:
        states, version = await self.client.list_reduced(JOBSETS, self._namespace, run_state.of_jobset)
        await self._replace(states, version)
        return version

    async def _watch(self, version: str, troubles: Troubles) -> str:
        """Watch from a version until the server ends it plainly; return the version to go on from. Raises _Lost."""
        try:
            async with self.client.watch(JOBSETS, self._namespace, version, silence=self._silence) as events:
                troubles.opened()
                async for event in events:
                    troubles.heard(event)
                    reached = self._apply(event)
                    if _is_before(reached, version):
                        raise Gone(f"the version went back from {version} to {reached}: this is another cluster")
                    self._version = version = reached or version
        except Gone as failure:
            raise _Lost(None, failure) from failure
        except Stalled as failure:
            # A server that was restored from a backup is silent until it reaches the version again; a list tells.
            raise _Lost(None, failure) from failure
        except RemoteError as failure:
            raise _Lost(version, failure) from failure
        return version

    async def _replace(self, listed: Iterable[RunState], version: str) -> None:
        """Take a whole list in; tells the waits a few at a time, since all of them may have to be told at once."""
        present = {state.name: state for state in listed}
        first = not self._listed
        self._listed = True
        before, self._states, self._version = self._states, present, version
        # A wait that comes from here on is told its state when it subscribes.
        waiting = list(self._subscriptions)
        changed = [name for name in waiting if first or not _same(before.get(name), present.get(name))]
        subscribed = {name: list(self._subscriptions[name]) for name in changed}
        for count, (name, subscriptions) in enumerate(subscribed.items(), 1):
            for subscription in subscriptions:
                subscription.inbox.put(present.get(name))
            if count % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _apply(self, event: dict[str, object]) -> str:
        """Take one event in, and return the version that it brings."""
        obj = event.get("object")
        assert isinstance(obj, dict)
        if event.get("type") == "BOOKMARK":
            return str((obj.get("metadata") or {}).get("resourceVersion") or "")
        state = run_state.of_jobset(obj)
        known = self._states.get(state.name)
        if known is not None and _is_before(state.resource_version, known.resource_version):
            # The known one was learned while the watch was behind.
            return state.resource_version
        if event.get("type") == "DELETED":
            if self._states.pop(state.name, None) is not None:
                self._tell(state.name, None)
        elif not _same(known, state):
            self._states[state.name] = state
            self._tell(state.name, state)
        return state.resource_version

    def _tell(self, name: str, told: RunState | RemoteError | None) -> None:
        for subscription in self._subscriptions.get(name, ()):
            subscription.inbox.put(told)

    def _end(self, failure: RemoteError) -> None:
        self._failure = failure
        for name in list(self._subscriptions):
            self._tell(name, failure)


class _Lost(Exception):
    """A watch ended badly. `version` is where the next one goes on, None if only a list can tell."""

    def __init__(self, version: str | None, failure: RemoteError) -> None:
        self.version = version
        self.failure = failure


_watches: dict[tuple[asyncio.AbstractEventLoop, ClusterAccess, str], SharedWatch] = {}


@asynccontextmanager
async def subscribed(
    access: ClusterAccess, namespace: str, name: str, inbox: Inbox | None = None
) -> AsyncIterator[Subscription]:
    """Wait on a JobSet through the event loop's watch on its cluster and namespace, made if there is none yet."""
    key = (asyncio.get_running_loop(), access, namespace)
    async with shared_cluster(access) as client:
        watch = _watches.get(key)
        if watch is None or watch.has_failed:
            watch = _watches[key] = SharedWatch(client, namespace, silence=SILENCE_SECONDS)
        subscription = watch.subscribe(name, inbox)
        try:
            yield subscription
        finally:
            if not watch.unsubscribe(subscription):
                if _watches.get(key) is watch:
                    del _watches[key]
                await watch.stop()


def _same(one: RunState | None, other: RunState | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.uid, one.resource_version) == (other.uid, other.resource_version)


def _is_before(one: str, other: str) -> bool:
    """Say whether a version is older than another: both are whole numbers that only grow within one cluster."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
