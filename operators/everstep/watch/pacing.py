"""Budgets of looks: however many waits there are, a process asks no more often than this."""

from __future__ import annotations

import asyncio
import random


class Pace:
    """Turns at intervals, handed out in the order in which they are asked for.

    :param per_minute: how many turns a minute there are at most, in the long run
    """

    def __init__(self, per_minute: float) -> None:
        self._gap = 60.0 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for a turn; the first one, and one after a rest, come at once."""
        loop = asyncio.get_running_loop()
        at = max(self._next, loop.time())
        self._next = at + self._gap * random.uniform(0.9, 1.1)
        await asyncio.sleep(at - loop.time())


class Paces:
    """One pace per event loop: waits of one triggerer share it."""

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self._paces: dict[asyncio.AbstractEventLoop, Pace] = {}

    def of_loop(self) -> Pace:
        """Return the pace of the running event loop."""
        loop = asyncio.get_running_loop()
        pace = self._paces.get(loop)
        if pace is None:
            for other in [other for other in self._paces if other.is_closed()]:
                del self._paces[other]
            pace = self._paces[loop] = Pace(self.per_minute)
        return pace
