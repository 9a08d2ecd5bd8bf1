"""Which failures are worth another try, and after how long."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from everstep.clients import errors
from everstep.clients.errors import RemoteError, Unauthenticated, Unavailable

Value = TypeVar("Value")

# How long a service that can't be reached or can't answer is tried, unless somebody waits for the answer in person.
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Backoff:
    """Waits between tries, in seconds: doubling from `first` to `longest`, half of each at random."""

    first: float = 0.5
    longest: float = 30.0
    give_up_after: float = PATIENCE_SECONDS

    def wait(self, tries: int, chance: Callable[[], float] = random.random) -> float:
        """Return the wait after the given number of failed tries in a row, 1 or more."""
        whole = min(self.longest, self.first * 2.0 ** min(tries - 1, 32))
        return whole * (0.5 + 0.5 * chance())


class Refresh(Enum):
    """What Tries.after answers instead of a wait: try again at once, with fresh credentials."""

    CREDENTIALS = "credentials"


@dataclass
class Tries:
    """The tries of one request.

    Too many requests, server errors and lost connections are tried again until `give_up_after`; refused credentials
    once, after a refresh; everything else fails at once.
    """

    backoff: Backoff = Backoff()
    clock: Callable[[], float] = time.monotonic
    failed: int = 0
    refreshed: bool = False
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def after(self, failure: RemoteError) -> float | Refresh:
        """Return how long to wait before the next try, or raise the failure."""
        if isinstance(failure, Unauthenticated) and not self.refreshed:
            self.refreshed = True
            return Refresh.CREDENTIALS
        if not isinstance(failure, Unavailable):
            raise failure
        self.failed += 1
        wait = self.backoff.wait(self.failed)
        if failure.retry_after is not None:
            # All who were refused at the same moment must not come back at the same moment.
            wait = failure.retry_after + wait
        if self.clock() + wait - self.started > self.backoff.give_up_after:
            raise failure
        return wait


async def tried(
    ask: Callable[[], Awaitable[Value]], refresh: Callable[[], Awaitable[None]], where: str, backoff: Backoff
) -> Value:
    """Ask in an event loop until there is an answer or another try is useless; raises the errors of clients.errors.

    :param refresh: lets the next request use fresh credentials
    :param where: what the request is, for the error
    """
    tries = Tries(backoff)
    while True:
        try:
            return await ask()
        except Exception as failure:
            error = errors.translate(failure, where)
            if error is None:
                raise
            wait = tries.after(error)
        if wait is Refresh.CREDENTIALS:
            await refresh()
        else:
            await asyncio.sleep(wait)
