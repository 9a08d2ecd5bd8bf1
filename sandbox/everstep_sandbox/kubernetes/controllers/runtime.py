"""Runs controllers: changes of the store and timers become keys, and each key is reconciled once per burst."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.store import Store

logger = logging.getLogger(__name__)

_FIRST_RETRY = 0.05
_LONGEST_RETRY = 5.0
_LONGEST_TURN = 0.01


class Controller(ABC):
    """One concern. Reconciling is synchronous: between two awaits nobody else writes."""

    resources: frozenset[str]
    """Plurals whose changes wake this controller."""

    @abstractmethod
    def keys(self, change: Change) -> Iterable[Hashable]:
        """What a change concerns."""

    @abstractmethod
    def all_keys(self) -> Iterable[Hashable]:
        """Everything there is to look at, for the start and after missed changes."""

    @abstractmethod
    def reconcile(self, key: Hashable) -> float | None:
        """Brings one thing closer to what it should be; returns seconds after which to look again, if any.

        May raise ApiError: a conflict or a missing object means that a newer look is due.
        """


class Runtime:
    """One queue for all controllers, in the order in which keys became due."""

    def __init__(self, store: Store, controllers: Sequence[Controller]) -> None:
        self._store = store
        self._controllers = controllers
        self._due: dict[tuple[int, Hashable], None] = {}
        self._timers: list[tuple[float, int, tuple[int, Hashable]]] = []
        self._deadlines: dict[tuple[int, Hashable], float] = {}
        self._failures: dict[tuple[int, Hashable], int] = {}
        self._order = itertools.count()

    async def run(self) -> None:
        """Until cancelled."""
        watched = frozenset().union(*(controller.resources for controller in self._controllers))
        while True:
            subscription = self._store.subscribe(watched)
            try:
                self._enqueue_all()
                while True:
                    for change in subscription.drain():
                        self._enqueue(change)
                    self._enqueue_expired()
                    if self._due:
                        await self._work()
                        continue
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together with a change.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._seconds_to_timer()):
                            await subscription.wait()
            except ApiError as error:
                logger.warning("controllers look at everything again: %s", error)
            finally:
                subscription.close()

    async def _work(self) -> None:
        """Reconciles for a short while, then lets the API have its turn."""
        until = time.monotonic() + _LONGEST_TURN
        while self._due and time.monotonic() < until:
            item = next(iter(self._due))
            del self._due[item]
            self._reconcile(item)
        await asyncio.sleep(0)

    def _reconcile(self, item: tuple[int, Hashable]) -> None:
        controller = self._controllers[item[0]]
        try:
            again = controller.reconcile(item[1])
        except ApiError as error:
            self._retry(item, f"{error.code} {error.message}", is_expected=error.code in (404, 409))
        except Exception:
            logger.exception("%s: %r", type(controller).__name__, item[1])
            self._retry(item, "see above", is_expected=False)
        else:
            self._failures.pop(item, None)
            if again is not None:
                self._at(time.monotonic() + again, item)

    def _retry(self, item: tuple[int, Hashable], why: str, *, is_expected: bool) -> None:
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        delay = min(_FIRST_RETRY * 2 ** (failures - 1), _LONGEST_RETRY)
        name = type(self._controllers[item[0]]).__name__
        logger.log(
            logging.DEBUG if is_expected else logging.WARNING, "%s: %r again in %.2f s: %s", name, item[1], delay, why
        )
        self._at(time.monotonic() + delay, item)

    def _at(self, moment: float, item: tuple[int, Hashable]) -> None:
        """Of several timers of one key only the earliest counts; reconciling sets the next."""
        known = self._deadlines.get(item)
        if known is None or moment < known:
            self._deadlines[item] = moment
            heapq.heappush(self._timers, (moment, next(self._order), item))

    def _enqueue(self, change: Change) -> None:
        for number, controller in enumerate(self._controllers):
            if change.resource in controller.resources:
                for key in controller.keys(change):
                    self._due[number, key] = None

    def _enqueue_all(self) -> None:
        for number, controller in enumerate(self._controllers):
            for key in controller.all_keys():
                self._due[number, key] = None

    def _enqueue_expired(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            moment, _, item = heapq.heappop(self._timers)
            if self._deadlines.get(item) == moment:
                del self._deadlines[item]
                self._due[item] = None

    def _seconds_to_timer(self) -> float | None:
        return max(self._timers[0][0] - time.monotonic(), 0) if self._timers else None
