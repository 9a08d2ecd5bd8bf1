"""File events of Linux (inotify), for asyncio and for plain waiting; libc through ctypes, no thread, no polling."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLOSE_WRITE = 0x00000008
MOVED_FROM = 0x00000040
MOVED_TO = 0x00000080
CREATE = 0x00000100
DELETE = 0x00000200
DELETE_SELF = 0x00000400
IS_DIRECTORY = 0x40000000
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Event:
    """`name` in the watched `directory`; "" when the event is about the directory itself."""

    directory: Path
    name: str
    mask: int


class Inotify:
    """Watches directories, by default for files that come to be there: created, renamed into place, closed."""

    def __init__(self) -> None:
        self.descriptor = _checked(_libc.inotify_init1(_NONBLOCK_CLOEXEC))
        self._directories: dict[int, Path] = {}

    def watch(self, directory: Path, mask: int = CLOSE_WRITE | MOVED_TO | CREATE | DELETE_SELF) -> None:
        """Raises OSError when the directory can't be watched (it may be gone)."""
        watch = _checked(_libc.inotify_add_watch(self.descriptor, os.fsencode(directory), mask))
        self._directories[watch] = directory

    def read(self) -> Iterator[Event]:
        """The events that are there now."""
        try:
            buffer = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return
        position = 0
        while position < len(buffer):
            watch, mask, _, length = _HEADER.unpack_from(buffer, position)
            position += _HEADER.size
            name = os.fsdecode(buffer[position : position + length].rstrip(b"\0"))
            position += length
            if watch in self._directories:
                yield Event(self._directories[watch], name, mask)

    def wait(self, timeout: float | None = None) -> list[Event]:
        """Blocks until something happens or `timeout` seconds are over."""
        select.select([self.descriptor], [], [], timeout)
        return list(self.read())

    def close(self) -> None:
        os.close(self.descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
