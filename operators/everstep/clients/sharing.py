"""Clients that all waits of an event loop share: opened by the first one, closed after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from everstep.clients.access import StorageAccess
from everstep.clients.storage_async import AsyncBucketClient


@dataclass
class _Held:
    client: AsyncBucketClient
    holders: int = 0


_buckets: dict[tuple[asyncio.AbstractEventLoop, StorageAccess, str], _Held] = {}


@asynccontextmanager
async def shared_bucket(access: StorageAccess, bucket: str) -> AsyncIterator[AsyncBucketClient]:
    """Use the event loop's one client of a bucket: one session, one pool of connections, one token."""
    key = (asyncio.get_running_loop(), access, bucket)
    held = _buckets.get(key)
    if held is None:
        held = _buckets[key] = _Held(access.open_async(bucket))
    held.holders += 1
    try:
        yield held.client
    finally:
        held.holders -= 1
        if not held.holders:
            del _buckets[key]
            await held.client.close()
