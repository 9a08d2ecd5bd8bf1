"""One reading of a bucket, repeated for all waits that want it.

However many waits want the same reading, it is done once at a time and told to all of them; a wait that comes between
two readings is told the last one if that is fresh enough for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from everstep.clients.access import StorageAccess
from everstep.clients.errors import RemoteError, Unavailable
from everstep.clients.sharing import shared_bucket
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch.inbox import Inbox
from everstep.watch.pacing import Pace, PerLoop

log = logging.getLogger(__name__)

# Readings of run folders take about ten requests each.
READINGS_PER_MINUTE = 240.0
# A service that is away has been tried for two minutes already when a reading says so.
AWAY_SECONDS = 15.0
_pace = PerLoop(lambda: Pace(READINGS_PER_MINUTE))


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, under the key of the reading."""

    key: Hashable
    value: Any


@dataclass(frozen=True, slots=True)
class Away:
    """The bucket can't be read now; the reading goes on."""

    message: str


Read = Callable[[AsyncBucketClient], Awaitable[Any]]
Pause = Callable[[Any, float], float]


class SharedReading:
    """A reading that goes on as long as somebody wants it, also while the service is away. It ends with the first
    failure of another kind, which all are told.

    :param read: reads
    :param pause: from what was read and the least interval that a wait asks for, seconds to the next reading
    """

    def __init__(self, key: Hashable, storage: StorageAccess, bucket: str, read: Read, pause: Pause) -> None:
        self._key = key
        self._storage = storage
        self._bucket = bucket
        self._read = read
        self._pause = pause
        self._waits: dict[Inbox, float] = {}
        self._last: Reading | None = None
        self._read_at = 0.0
        self._joined = asyncio.Event()
        self._is_too_old = False
        self._task: asyncio.Task[None] | None = None
        self.has_failed = False

    def add(self, inbox: Inbox, least_interval: float) -> None:
        """Tell an inbox each Reading, Away when there is none to be had, or a RemoteError, until it is removed."""
        self._waits[inbox] = least_interval
        if self._task is None:
            self._task = asyncio.create_task(self._read_on(), name=f"everstep-reading-{self._bucket}")
        elif self._last is not None:
            if asyncio.get_running_loop().time() - self._read_at <= least_interval:
                inbox.put(self._last)
            else:
                self._is_too_old = True
            self._joined.set()

    def remove(self, inbox: Inbox) -> bool:
        """Tell an inbox nothing more. Return whether others are left."""
        self._waits.pop(inbox, None)
        return bool(self._waits)

    async def stop(self) -> None:
        """End the reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read_on(self) -> None:
        try:
            async with shared_bucket(self._storage, self._bucket) as client:
                while True:
                    await _pace.get().turn()
                    try:
                        self._last = Reading(self._key, await self._read(client))
                    except Unavailable as failure:
                        log.info("gs://%s can't be read: %s", self._bucket, failure.message)
                        self._tell(Away(failure.message))
                        await asyncio.sleep(AWAY_SECONDS * random.uniform(0.9, 1.1))
                        continue
                    self._read_at = asyncio.get_running_loop().time()
                    self._tell(self._last)
                    await self._rest(self._last.value)
        except RemoteError as failure:
            self._fail(failure)
        except Exception as failure:
            log.exception("The reading %s broke", self._key)
            self._fail(Unavailable(f"reading gs://{self._bucket}: {type(failure).__name__}: {failure}"))

    async def _rest(self, value: Any) -> None:
        """Wait until the next reading is due, which a wait that joins may bring nearer."""
        loop = asyncio.get_running_loop()
        due = math.inf
        self._is_too_old = False
        while not self._is_too_old:
            self._joined.clear()
            least = min(self._waits.values(), default=0.0)
            due = min(due, loop.time() + self._pause(value, least) * random.uniform(0.9, 1.1))
            try:
                async with asyncio.timeout_at(due):
                    await self._joined.wait()
            except TimeoutError:
                return

    def _fail(self, failure: RemoteError) -> None:
        self.has_failed = True
        self._tell(failure)

    def _tell(self, told: Reading | Away | RemoteError) -> None:
        for inbox in list(self._waits):
            inbox.put(told)


_readings: dict[tuple[asyncio.AbstractEventLoop, StorageAccess, str, Hashable], SharedReading] = {}


@asynccontextmanager
async def reading(
    storage: StorageAccess, bucket: str, key: Hashable, read: Read, pause: Pause, inbox: Inbox, least_interval: float
) -> AsyncIterator[None]:
    """Let an inbox be told a Reading again and again, through the event loop's one reading under that key."""
    place = (asyncio.get_running_loop(), storage, bucket, key)
    shared = _readings.get(place)
    if shared is None or shared.has_failed:
        shared = _readings[place] = SharedReading(key, storage, bucket, read, pause)
    shared.add(inbox, least_interval)
    try:
        yield
    finally:
        if not shared.remove(inbox):
            if _readings.get(place) is shared:
                del _readings[place]
            await shared.stop()
