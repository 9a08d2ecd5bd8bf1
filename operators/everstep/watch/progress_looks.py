"""What runs report of themselves in a bucket, told to the waits on them. No decision depends on it.

However many waits there are on a run, it is looked at once; and however many runs there are, a process looks no more
often than `LOOKS_PER_MINUTE`, so the more runs it waits for, the longer it takes to come back to each.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import StorageAccess
from everstep.clients.errors import RemoteError
from everstep.clients.sharing import shared_bucket
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch.inbox import Inbox
from everstep.watch.pacing import Pace, PerLoop

log = logging.getLogger(__name__)

LOOKS_PER_MINUTE = 60.0
# A bucket that does not answer must not keep the other runs' looks for long.
LONGEST_LOOK_SECONDS = 20.0
_pace = PerLoop(lambda: Pace(LOOKS_PER_MINUTE))

Attempt = tuple[int, int]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a look found. `restored` are the reports of an attempt all nodes of which have restored."""

    status: Document | None
    attempt: Attempt | None = None
    restored: list[Document] | None = None
    failure: str = ""


@dataclass(eq=False, slots=True)
class ProgressWait:
    """One wait's interest in a run. `attempt` is the one whose restore it has yet to be told."""

    inbox: Inbox
    attempt: Attempt | None = None


@dataclass(eq=False, slots=True)
class _Run:
    folder: RunFolder
    look_every: float
    due: float
    nodes: int = 0
    waits: list[ProgressWait] = field(default_factory=list)
    restored: dict[Attempt, dict[str, Document]] = field(default_factory=dict)


class BucketLooks:
    """The looks at all runs of one bucket."""

    def __init__(self, storage: StorageAccess, bucket: str) -> None:
        self._storage = storage
        self._bucket = bucket
        self._runs: dict[str, _Run] = {}
        self._added = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, name: str, wait: ProgressWait, look_every: float) -> None:
        """Look at a run for a wait, about every so many seconds."""
        run = self._runs.get(name)
        if run is None:
            due = asyncio.get_running_loop().time() + look_every * random.uniform(0.5, 1.0)
            run = self._runs[name] = _Run(RunFolder(self._bucket, name), look_every, due)
        # Another wait may be for another launch, which may have another number of nodes.
        run.nodes = 0
        run.waits.append(wait)
        self._added.set()
        if self._task is None:
            self._task = asyncio.create_task(self._look_on(), name=f"everstep-progress-{self._bucket}")

    def remove(self, name: str, wait: ProgressWait) -> bool:
        """Look no more for a wait. Return whether others are left."""
        run = self._runs[name]
        run.waits.remove(wait)
        if not run.waits:
            del self._runs[name]
        return bool(self._runs)

    async def stop(self) -> None:
        """End the looks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        async with shared_bucket(self._storage, self._bucket) as client:
            while True:
                self._added.clear()
                run = min(self._runs.values(), key=lambda run: run.due, default=None)
                remaining = None if run is None else run.due - loop.time()
                if run is None or (remaining is not None and remaining > 0):
                    try:
                        async with asyncio.timeout(remaining):
                            await self._added.wait()
                    except TimeoutError:
                        pass
                    continue
                run.due = loop.time() + run.look_every * random.uniform(0.9, 1.1)
                await _pace.get().turn()
                if run.waits:
                    await self._look(client, run)

    async def _look(self, client: AsyncBucketClient, run: _Run) -> None:
        try:
            async with asyncio.timeout(LONGEST_LOOK_SECONDS):
                found = await client.run(run_folder.progress(run.folder, with_run_record=not run.nodes))
                run.nodes = run.nodes or int((found.get("run.json") or {}).get("nodes") or 0)
                wanted = {wait.attempt for wait in run.waits if wait.attempt is not None}
                run.restored = {attempt: run.restored.get(attempt, {}) for attempt in wanted}
                reports = {attempt: await self._restored(client, run, attempt) for attempt in wanted}
        except (RemoteError, TimeoutError) as failure:
            told = failure.message if isinstance(failure, RemoteError) else f"{run.folder.url()} does not answer"
            for wait in run.waits:
                wait.inbox.put(Progress(None, failure=told))
            return
        except Exception:
            log.exception("The reports of %s can't be told", run.folder.url())
            return
        for wait in run.waits:
            restored = None if wait.attempt is None else reports.get(wait.attempt)
            wait.inbox.put(Progress(found.get("status.json"), wait.attempt, restored))

    async def _restored(self, client: AsyncBucketClient, run: _Run, attempt: Attempt) -> list[Document] | None:
        """Return the reports of an attempt if all its nodes have restored."""
        if not run.nodes:
            return None
        reports = await client.run(run_folder.attempt(run.folder, *attempt, run.restored[attempt]))
        restored = [report for report in reports if report.get("restored_tier")]
        return restored if len(restored) >= run.nodes else None


_looks: dict[tuple[asyncio.AbstractEventLoop, StorageAccess, str], BucketLooks] = {}


@asynccontextmanager
async def progress_of(
    storage: StorageAccess, folder: RunFolder, inbox: Inbox, look_every: float
) -> AsyncIterator[ProgressWait]:
    """Let an inbox be told the Progress of a run through the event loop's looks at its bucket."""
    key = (asyncio.get_running_loop(), storage, folder.bucket)
    looks = _looks.get(key)
    if looks is None:
        looks = _looks[key] = BucketLooks(storage, folder.bucket)
    wait = ProgressWait(inbox)
    looks.add(folder.run, wait, look_every)
    try:
        yield wait
    finally:
        if not looks.remove(folder.run, wait):
            if _looks.get(key) is looks:
                del _looks[key]
            await looks.stop()
