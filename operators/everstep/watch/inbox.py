"""Where one wait gets told what concerns it: by the watch, by looks at a bucket, by its own inquiries.

Waits come by the thousand, so an inbox is as small as it can be and wakes its owner for nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Inbox:
    """What was told to one wait and not yet taken, in order. Belongs to one event loop."""

    __slots__ = ("_told", "_waiter")

    def __init__(self) -> None:
        self._told: deque[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, told: Any) -> None:
        """Tell something; never blocks."""
        if self._told is None:
            self._told = deque()
        self._told.append(told)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, patience: float | None = None) -> Any:
        """Return the next thing told. Raises TimeoutError when nothing was for `patience` seconds."""
        if not self._told:
            try:
                async with asyncio.timeout(patience):
                    while not self._told:
                        self._waiter = asyncio.get_running_loop().create_future()
                        try:
                            await self._waiter
                        finally:
                            self._waiter = None
            except TimeoutError:
                # In a busy event loop both may have come by the time that somebody looks.
                if not self._told:
                    raise
        assert self._told is not None
        told = self._told.popleft()
        if not self._told:
            # An empty deque holds 600 bytes.
            self._told = None
        return told
