"""How long to wait before a watch is opened again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from everstep.clients.errors import Forbidden, Gone, NotConfigured, NotFound, RemoteError, Unauthenticated, Unavailable
from everstep.clients.retrying import PATIENCE_SECONDS, Backoff

log = logging.getLogger(__name__)

# A watch that lasted so long was a working one: when it ends, the next try comes at once.
WORKED_SECONDS = 1.0
LONGEST_RETRY_AFTER = 60.0
_RECONNECT = Backoff(first=0.2, longest=15.0)
# What a server that starts says until it has read its roles and its kinds of objects, or while a kubeconfig is written.
_MAY_PASS = (Unauthenticated, Forbidden, NotFound, NotConfigured)


class Troubles:
    """What went wrong since the last working watch, and how long to wait before the next try."""

    def __init__(self, namespace: str, chance: Callable[[float, float], float] = random.uniform) -> None:
        self._namespace = namespace
        self._chance = chance
        self._in_a_row = 0
        self._opened_at: float | None = None
        self._heard = False
        self._refused_since: float | None = None

    def opened(self) -> None:
        """A watch was opened."""
        self._opened_at = asyncio.get_running_loop().time()
        self._refused_since = None

    def heard(self, event: Mapping[str, object]) -> None:
        """Something came on the watch."""
        self._heard = self._heard or event.get("type") != "BOOKMARK"

    async def ended_plainly(self) -> None:
        """The server ended a watch, as it does now and then; one that ends at once must not become a busy loop."""
        self._count()
        if self._in_a_row:
            await asyncio.sleep(_RECONNECT.wait(self._in_a_row))

    async def sit_out(self, failure: RemoteError, *, knows_us: bool) -> None:
        """Wait before the next try, or raise the failure when no other try can help.

        Credentials that were refused are renewed at once. A service that took us before may refuse us for a while, as
        an API server does that has just started; so only one that goes on refusing is believed.

        :param knows_us: whether the service has answered before
        """
        self._count()
        first = self._refused_since is None
        if not isinstance(failure, _MAY_PASS):
            self._refused_since = None
        if isinstance(failure, Gone):
            await asyncio.sleep(self._chance(0, _RECONNECT.first) if self._in_a_row <= 1 else self._wait())
        elif isinstance(failure, _MAY_PASS):
            now = asyncio.get_running_loop().time()
            self._refused_since = self._refused_since or now
            if first and isinstance(failure, Unauthenticated):
                return
            if not knows_us or now - self._refused_since > PATIENCE_SECONDS:
                raise failure
            await self._pause(failure, self._wait())
        elif isinstance(failure, Unavailable):
            await self._pause(failure, self._wait() + min(failure.retry_after or 0.0, LONGEST_RETRY_AFTER))
        else:
            raise failure

    async def _pause(self, failure: RemoteError, seconds: float) -> None:
        log.info("Watch on JobSets of %s lost (%s); again in %.1f s", self._namespace, failure.message, seconds)
        await asyncio.sleep(seconds)

    def _wait(self) -> float:
        return _RECONNECT.wait(max(self._in_a_row, 1))

    def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        worked = self._heard or (self._opened_at is not None and now - self._opened_at >= WORKED_SECONDS)
        self._opened_at, self._heard = None, False
        self._in_a_row = 0 if worked else self._in_a_row + 1
