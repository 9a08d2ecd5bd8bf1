"""One watch per cluster and namespace for any number of waits in one event loop.

A wait subscribes to the JobSet of one name and gets each of its states once and in order: first the present one (None
while there is no such JobSet), then every change, then None when it is deleted. States are compared by resource
version, so what a new list tells again is not told twice, and what changed while the watch was away is.

The watch starts with the first subscription and ends with the last one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from everstep.clients.access import ClusterAccess
from everstep.clients.errors import Gone, RemoteError, Unauthenticated, Unavailable
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.clients.retrying import Backoff
from everstep.watch import run_state
from everstep.watch.run_state import RunState

log = logging.getLogger(__name__)

# API servers send a bookmark about once a minute; a watch that is silent for longer has lost its connection.
SILENCE_SECONDS = 150.0
_RECONNECT = Backoff(first=0.2, longest=15.0)

Told = RunState | None | RemoteError


@dataclass
class Subscription:
    """One wait on one JobSet."""

    name: str
    client: AsyncKubernetesClient
    _states: asyncio.Queue[Told] = field(default_factory=asyncio.Queue)

    async def next(self) -> RunState | None:
        """Return the next state, None when there is no such JobSet (any more).

        Raises RemoteError when the watch can't go on: refused credentials, no leave, no such kind of object.
        """
        told = await self._states.get()
        if isinstance(told, RemoteError):
            raise told
        return told

    def tell(self, told: Told) -> None:
        """Hand over a state; never blocks."""
        self._states.put_nowait(told)


class SharedWatch:
    """The watch on all JobSets of a namespace."""

    def __init__(self, client: AsyncKubernetesClient, namespace: str, *, silence: float = SILENCE_SECONDS) -> None:
        self.client = client
        self._namespace = namespace
        self._silence = silence
        self._states: dict[str, RunState] = {}
        self._subscriptions: dict[str, list[Subscription]] = defaultdict(list)
        self._listed = False
        self._failure: RemoteError | None = None
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, name: str) -> Subscription:
        """Add a wait on the JobSet of that name."""
        subscription = Subscription(name, self.client)
        self._subscriptions[name].append(subscription)
        if self._listed:
            subscription.tell(self._states.get(name))
        if self._failure is not None:
            subscription.tell(self._failure)
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

    async def stop(self) -> None:
        """End the watch and close its connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

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
        lost = 0
        refreshed = False
        while True:
            try:
                if version is None:
                    items, version = await self.client.list_all(JOBSETS, self._namespace)
                    self._replace(run_state.of_jobset(item) for item in items)
                heard = False
                async with self.client.watch(JOBSETS, self._namespace, version, silence=self._silence) as events:
                    async for event in events:
                        heard, lost, refreshed = True, 0, False
                        version = self._apply(event) or version
                if heard:
                    continue
                # The server ends watches now and then; one that ends at once must not become a busy loop.
                lost += 1
                await asyncio.sleep(_RECONNECT.wait(lost))
            except Gone:
                version = None
                await asyncio.sleep(random.uniform(0, _RECONNECT.first))
            except Unauthenticated:
                if refreshed:
                    raise
                refreshed = True
                await self.client.refresh()
            except Unavailable as failure:
                lost += 1
                wait = max(_RECONNECT.wait(lost), failure.retry_after or 0.0)
                log.info("Watch on JobSets of %s lost (%s); again in %.1f s", self._namespace, failure.message, wait)
                await asyncio.sleep(wait)

    def _replace(self, listed: Iterable[RunState]) -> None:
        present = {state.name: state for state in listed}
        first = not self._listed
        self._listed = True
        before, self._states = self._states, present
        for name in list(self._subscriptions):
            new, old = present.get(name), before.get(name)
            if first or not _same(old, new):
                self._tell(name, new)

    def _apply(self, event: dict[str, object]) -> str:
        """Take one event in, and return the version that it brings."""
        obj = event.get("object")
        assert isinstance(obj, dict)
        state = run_state.of_jobset(obj)
        if event.get("type") == "BOOKMARK":
            return state.resource_version
        if event.get("type") == "DELETED":
            if self._states.pop(state.name, None) is not None:
                self._tell(state.name, None)
        elif not _same(self._states.get(state.name), state):
            self._states[state.name] = state
            self._tell(state.name, state)
        return state.resource_version

    def _tell(self, name: str, told: Told) -> None:
        for subscription in self._subscriptions.get(name, ()):
            subscription.tell(told)

    def _end(self, failure: RemoteError) -> None:
        self._failure = failure
        for name in list(self._subscriptions):
            self._tell(name, failure)


_watches: dict[tuple[asyncio.AbstractEventLoop, ClusterAccess, str], SharedWatch] = {}


@asynccontextmanager
async def subscribed(access: ClusterAccess, namespace: str, name: str) -> AsyncIterator[Subscription]:
    """Wait on a JobSet through the event loop's watch on its cluster and namespace, made if there is none yet."""
    key = (asyncio.get_running_loop(), access, namespace)
    watch = _watches.get(key)
    if watch is None or watch.has_failed:
        watch = _watches[key] = SharedWatch(access.open_async(), namespace)
    subscription = watch.subscribe(name)
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
