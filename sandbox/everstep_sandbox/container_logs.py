"""Logs of containers as files, and the parts of them that are asked for.

The kubelet writes one line per entry, `<RFC 3339 time> <stdout|stderr> <F|P> <text>` (the CRI format; P marks a part
of a longer line), to nodes/<node>/pods/<pod uid>/logs/<container>.log.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from everstep_sandbox.kubernetes.objects import now, parse_timestamp

# Files give no event without a watcher thread per file; a follower is a person or a test that can wait this long.
_FOLLOW_INTERVAL_SECONDS = 0.1
_READ_BYTES = 1 << 20


class LogView:
    """What of a log is shown: since when, how many lines at the end, with times or not, how many bytes."""

    def __init__(self, query: Mapping[str, str]) -> None:
        """Takes the parameters of pods/log; raises ValueError that names the one that can't be read."""
        self._timestamps = _flag(query, "timestamps")
        self.follow = _flag(query, "follow")
        self._tail = _integer(query, "tailLines")
        self._left = _integer(query, "limitBytes")
        self._since: datetime.datetime | None = None
        seconds = _integer(query, "sinceSeconds")
        if seconds is not None:
            self._since = now() - datetime.timedelta(seconds=seconds)
        elif query.get("sinceTime"):
            try:
                self._since = parse_timestamp(query["sinceTime"])
            except ValueError:
                raise ValueError(f"sinceTime: found {query['sinceTime']!r}, expected RFC 3339") from None

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def render(self, lines: list[bytes], *, is_first: bool) -> bytes:
        """The text of the lines that are shown; `tailLines` counts from the end of what is there at first."""
        entries = [entry for entry in map(_parse, lines) if entry and self._is_recent(entry[0])]
        if is_first and self._tail is not None:
            entries = _last_whole_lines(entries, self._tail)
        text = b"".join(
            (moment + b" " if self._timestamps else b"") + content + (b"\n" if whole else b"")
            for moment, whole, content in entries
        )
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _is_recent(self, moment: bytes) -> bool:
        if self._since is None:
            return True
        try:
            return parse_timestamp(moment.decode()) >= self._since
        except ValueError:
            return True


async def read(path: Path | None, view: LogView, is_running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The parts of a log that a view shows; one that follows goes on as long as the container runs."""
    position = 0
    partial = b""
    first = True
    while not view.is_full:
        # Asked before reading, so that what is written up to the end is still read.
        goes_on = view.follow and is_running()
        data = _read_from(path, position, None if first else _READ_BYTES)
        position += len(data)
        lines = (partial + data).split(b"\n")
        partial = lines.pop()
        text = view.render(lines, is_first=first)
        first = False
        if text:
            yield text
        if not data:
            if not goes_on:
                return
            await asyncio.sleep(_FOLLOW_INTERVAL_SECONDS)


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"query parameter {name}: found {text!r}, expected a whole number") from None


def _read_from(path: Path | None, position: int, limit: int | None) -> bytes:
    if path is None or not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(position)
        return file.read(limit)


def _parse(line: bytes) -> tuple[bytes, bool, bytes] | None:
    parts = line.split(b" ", 3)
    if len(parts) < 3:
        return None
    return parts[0], parts[2] != b"P", parts[3] if len(parts) > 3 else b""


def _last_whole_lines(entries: list[tuple[bytes, bool, bytes]], count: int) -> list[tuple[bytes, bool, bytes]]:
    if count <= 0:
        return []
    seen = 0
    for index in range(len(entries) - 1, -1, -1):
        if entries[index][1]:
            seen += 1
            if seen > count:
                return entries[index + 1 :]
    return entries
