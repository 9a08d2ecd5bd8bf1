"""When files of a directory come and go, as the kernel tells it to a thread that does nothing else."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from pathlib import Path

COMES = 0x00000080 | 0x00000100  # IN_MOVED_TO, IN_CREATE
GOES = 0x00000040 | 0x00000200  # IN_MOVED_FROM, IN_DELETE
_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class FileTimes:
    """Watches one directory from its making until `close`. Times are of `time.monotonic`, which all processes share."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC)
        if self._descriptor < 0 or _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), COMES | GOES) < 0:
            raise OSError(ctypes.get_errno(), f"{directory} can't be watched")
        self._seen: list[tuple[float, str, bool]] = []
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        os.close(self._ended)
        self._thread.join()
        os.close(self._descriptor)
        os.close(self._end)

    def first(self, name: str, *, came: bool, since: float) -> float:
        """Return when a file whose name ends with `name` first came or went after `since`. Raises LookupError."""
        for at, seen, comes in list(self._seen):
            if at >= since and comes is came and seen.endswith(name):
                return at
        raise LookupError(f"no file *{name} was seen to {'come' if came else 'go'}; seen: {self._seen[-20:]}")

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._descriptor, self._end], [], [])
            at = time.monotonic()
            if self._end in ready:
                return
            buffer = os.read(self._descriptor, 1 << 16)
            position = 0
            while position < len(buffer):
                _, mask, _, length = _HEADER.unpack_from(buffer, position)
                position += _HEADER.size
                name = os.fsdecode(buffer[position : position + length].rstrip(b"\0"))
                position += length
                self._seen.append((at, name, bool(mask & COMES)))
