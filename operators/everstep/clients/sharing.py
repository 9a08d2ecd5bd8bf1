"""Clients that all waits of an event loop share: opened by the first one, closed after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.storage_async import AsyncBucketClient

Client = TypeVar("Client", AsyncBucketClient, AsyncKubernetesClient)


class _Clients(Generic[Client]):
    """The clients in use, and how many users each has."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, Client] = {}
        self._users: dict[Hashable, int] = {}

    @asynccontextmanager
    async def using(self, place: Hashable, open_client: Callable[[], Client]) -> AsyncIterator[Client]:
        key = (asyncio.get_running_loop(), place)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = open_client()
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield client
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._clients[key]
                await client.close()

    def __len__(self) -> int:
        return len(self._clients)


_buckets: _Clients[AsyncBucketClient] = _Clients()
_clusters: _Clients[AsyncKubernetesClient] = _Clients()


@asynccontextmanager
async def shared_bucket(access: StorageAccess, bucket: str) -> AsyncIterator[AsyncBucketClient]:
    """Use the event loop's one client of a bucket: one session, one pool of connections, one token."""
    async with _buckets.using((access, bucket), lambda: access.open_async(bucket)) as client:
        yield client


@asynccontextmanager
async def shared_cluster(access: ClusterAccess) -> AsyncIterator[AsyncKubernetesClient]:
    """Use the event loop's one client of a cluster, whatever the namespaces."""
    async with _clusters.using(access, access.open_async) as client:
        yield client
