"""What nodes and the coordinator say to each other: one JSON object a line, a question and its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]

NO_CHECKPOINT = "No valid checkpoints found"
"""The coordinator's answer instead of a step. A step of 0 counts as it, since the real one tests for truth."""

_LONGEST_LINE_BYTES = 64 << 20


class Link:
    """One connection; messages are answered in turn."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> Link:
        """Raises OSError when nobody listens there."""
        return cls(*await asyncio.open_connection(host, port, limit=_LONGEST_LINE_BYTES))

    async def send(self, message: Message) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def receive(self) -> Message:
        """Raises ConnectionError when the other side is gone."""
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("The connection was closed.")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ConnectionError(f"Expected an object, found {line[:80]!r}.")
        return message

    async def ask(self, message: Message) -> Message:
        await self.send(message)
        return await self.receive()

    def close(self) -> None:
        self._writer.close()


async def listen(host: str, port: int, serve: Callable[[Link], Awaitable[None]]) -> asyncio.Server:
    """A server whose `serve(Link)` is called for each connection. Raises OSError when the port is taken."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        with contextlib.suppress(ConnectionError):
            await serve(link)
        link.close()

    return await asyncio.start_server(accept, host, port, limit=_LONGEST_LINE_BYTES)
