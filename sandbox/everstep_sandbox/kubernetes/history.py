"""The recent past of the store: a ring of changes for watches, and subscriptions that never miss one."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Literal

from everstep_sandbox.kubernetes.errors import expired
from everstep_sandbox.kubernetes.objects import Object

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Change:
    """One committed write. `object` carries the write's resourceVersion, also when it was deleted; read only."""

    __slots__ = ("_encoded", "object", "previous", "resource", "type", "version")

    def __init__(self, type: ChangeType, resource: str, object: Object, previous: Object | None, version: int) -> None:
        self.type = type
        self.resource = resource
        self.object = object
        self.previous = previous
        self.version = version
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON, encoded once for all watchers."""
        if self._encoded is None:
            self._encoded = json.dumps(self.object, separators=(",", ":")).encode()
        return self._encoded


class Subscription(AsyncIterator[Change]):
    """Changes from one version on, in order. Raises ApiError 410 when the reader falls too far behind."""

    def __init__(self, history: History, resources: frozenset[str] | None, namespace: str | None) -> None:
        self._history = history
        self._resources = resources
        self._namespace = namespace
        self._pending: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        self._closed = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Change:
        while not self._pending:
            await self.wait()
            if self._closed:
                raise StopAsyncIteration
        return self._pending.popleft()

    async def wait(self) -> None:
        """Returns when changes are pending or the subscription is closed; raises ApiError 410 when it lost some."""
        while not self._pending and not self._closed and not self._lost:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._lost:
            raise expired("too old resource version: the reader fell behind the kept history")

    def drain(self) -> list[Change]:
        """All pending changes at once, without waiting; possibly none."""
        drained = list(self._pending)
        self._pending.clear()
        return drained

    def close(self) -> None:
        self._closed = True
        self._history.forget(self)
        self._wake()

    def wants(self, change: Change) -> bool:
        if self._resources is not None and change.resource not in self._resources:
            return False
        return self._namespace is None or change.object["metadata"].get("namespace") == self._namespace

    def push(self, change: Change) -> None:
        if len(self._pending) >= self._history.capacity:
            self._lost = True
            self._pending.clear()
        if not self._lost:
            self._pending.append(change)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class History:
    """The last `capacity` changes, and who is to be told of new ones."""

    def __init__(self, version: int, capacity: int = 20_000) -> None:
        self.capacity = capacity
        self._oldest = version
        """Changes after this version are still known."""
        self._changes: deque[Change] = deque()
        self._subscriptions: set[Subscription] = set()

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > self.capacity:
            self._oldest = self._changes.popleft().version
        for subscription in self._subscriptions:
            if subscription.wants(change):
                subscription.push(change)

    def subscribe(
        self, resources: Iterable[str] | None = None, *, namespace: str | None = None, since: int | None = None
    ) -> Subscription:
        """Changes after version `since` (default: from now on). Raises ApiError 410 when it is no longer kept."""
        if since is not None and since < self._oldest:
            raise expired(f"too old resource version: {since} ({self._oldest})")
        wanted = None if resources is None else frozenset(resources)
        subscription = Subscription(self, wanted, namespace)
        if since is not None and self._changes and since < self._changes[-1].version:
            for change in self._changes:
                if change.version > since and subscription.wants(change):
                    subscription.push(change)
        self._subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def compact(self, version: int) -> None:
        """Forgets everything up to `version`: watches from before it get 410, running ones go on."""
        self._oldest = max(self._oldest, version)
        while self._changes and self._changes[0].version <= version:
            self._changes.popleft()
