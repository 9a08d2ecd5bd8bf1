"""Container logs on disk, one line an entry in the CRI format: `<RFC 3339 nanoseconds> stdout|stderr F|P <text>`."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

_LONGEST_ENTRY = 16 * 1024


def log_path(pod_directory: Path, container: str) -> Path:
    """Where the log of a container's newest run is."""
    return pod_directory / "logs" / f"{container}.log"


class ContainerLog:
    """Writes what a container prints to its log; a previous run's log is kept as `<container>.previous.log`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.replace(path.with_suffix(".previous.log"))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._readers: list[asyncio.Task[None]] = []

    async def attach(self, pipe: int, stream: str) -> None:
        """Copies from the pipe's reading end until its last writer is gone, then closes it."""
        reader = asyncio.StreamReader(limit=1 << 20)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        self._readers.append(loop.create_task(self._copy(reader, stream, transport)))

    async def finish(self, timeout: float) -> None:
        """Waits until all is written, at most `timeout` seconds (a stray process may hold the pipe)."""
        if self._readers:
            _, late = await asyncio.wait(self._readers, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        os.close(self._descriptor)

    async def _copy(self, reader: asyncio.StreamReader, stream: str, transport: asyncio.BaseTransport) -> None:
        rest = b""
        try:
            while chunk := await reader.read(1 << 16):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                entries = [piece for line in lines for piece in _pieces(line, "F")]
                while len(rest) >= _LONGEST_ENTRY:
                    entries.append(("P", rest[:_LONGEST_ENTRY]))
                    rest = rest[_LONGEST_ENTRY:]
                self._write(stream, entries)
            if rest:
                self._write(stream, [("F", rest)])
        finally:
            transport.close()

    def _write(self, stream: str, entries: list[tuple[str, bytes]]) -> None:
        if not entries:
            return
        now = time.time_ns()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1_000_000_000))
        head = f"{stamp}.{now % 1_000_000_000:09d}Z {stream} ".encode()
        os.write(self._descriptor, b"".join(head + tag.encode() + b" " + text + b"\n" for tag, text in entries))


def _pieces(line: bytes, last: str) -> list[tuple[str, bytes]]:
    """A line cut into entries of bounded length; all but the last are partial."""
    cuts = [line[start : start + _LONGEST_ENTRY] for start in range(0, len(line), _LONGEST_ENTRY)] or [b""]
    return [("P", cut) for cut in cuts[:-1]] + [(last, cuts[-1])]
