"""Budgets of an event loop: how often its waits may ask, and how many may start in one go."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class PerLoop(Generic[Kept]):
    """One thing per event loop, which all waits of a triggerer share."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make = make
        self._kept: dict[asyncio.AbstractEventLoop, Kept] = {}

    def get(self) -> Kept:
        """Return the running event loop's own."""
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            # Loops of other threads come and go meanwhile.
            for closed in [other for other in list(self._kept) if other.is_closed()]:
                self._kept.pop(closed, None)
            self._kept[loop] = self._make()
        return self._kept[loop]


class Pace:
    """Turns at intervals, handed out in the order in which they are asked for.

    :param per_minute: how many turns a minute there are at most, in the long run
    """

    def __init__(self, per_minute: float) -> None:
        self._gap = 60.0 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for a turn; the first one, and one after a rest, come at once. Who gives up gives the turn back."""
        loop = asyncio.get_running_loop()
        at = max(self._next, loop.time())
        gap = self._gap * random.uniform(0.9, 1.1)
        self._next = at + gap
        try:
            await asyncio.sleep(at - loop.time())
        except asyncio.CancelledError:
            self._next -= gap
            raise


class Turnstile:
    """Lets a few through in each round of the event loop, so that a thousand that come at once don't block it."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._entered = 0
        self._is_turning = False
        self._queue: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place in a round."""
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._entered < self._at_once and not self._queue:
            self._entered += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        await place

    def _turn(self) -> None:
        self._entered = 0
        while self._queue and self._entered < self._at_once:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                self._entered += 1
        self._is_turning = self._entered > 0
        if self._is_turning:
            asyncio.get_running_loop().call_soon(self._turn)
