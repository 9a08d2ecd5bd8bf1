"""When files of a directory come and go, as the kernel tells it to a thread that does nothing else."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

from everstep_sandbox.checkpointing.inotify import CREATE, DELETE, MOVED_FROM, MOVED_TO, Inotify

COMES = MOVED_TO | CREATE
GOES = MOVED_FROM | DELETE


class FileTimes:
    """Watches one directory from its making until `close`. Times are of `time.monotonic`, which all processes share."""

    def __init__(self, directory: Path) -> None:
        self._events = Inotify()
        self._events.watch(directory, COMES | GOES)
        self._seen: list[tuple[float, str, bool]] = []
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        os.close(self._ended)
        self._thread.join()
        self._events.close()
        os.close(self._end)

    def first(self, name: str, *, came: bool, since: float) -> float:
        """Return when a file whose name ends with `name` first came or went after `since`. Raises LookupError."""
        for at, seen, comes in list(self._seen):
            if at >= since and comes is came and seen.endswith(name):
                return at
        raise LookupError(f"no file *{name} was seen to {'come' if came else 'go'}; seen: {self._seen[-20:]}")

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._events.descriptor, self._end], [], [])
            at = time.monotonic()
            if self._end in ready:
                return
            self._seen += [(at, event.name, bool(event.mask & COMES)) for event in self._events.read()]
