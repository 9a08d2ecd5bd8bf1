"""How fast a bucket may be asked: a rate that many threads keep together, and slow down when the bucket is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MARGIN = 0.9
"""Of the rate: with batches of a tenth of it, no second sees more than the rate, wherever it begins."""
SLOWEST = 1.0
"""Below this many objects per second a rate is not lowered."""


class Pace:
    """Keeps changes below a number of objects per second.

    After a batch of n objects nobody sends for n / rate seconds (and a little more). Time that nobody used is not saved
    up, so there are no bursts. Each refusal (429, 503) halves the rate and makes everybody wait; each batch that was
    taken brings back a tenth of it.

    :param rate: objects per second
    """

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate <= 0:
            raise ValueError(f"a rate above 0 objects per second, not {rate}")
        self.rate = rate
        self._present = rate
        self._clock = clock
        self._sleep = sleep
        self._next = clock()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    @property
    def present(self) -> float:
        """Return the rate at the moment, in objects per second."""
        return self._present

    @property
    def largest(self) -> int:
        """Return how many objects at most make a batch."""
        return max(1, int(self.rate * (1 - MARGIN)))

    def wait(self, objects: int) -> None:
        """Wait until so many objects may be changed."""
        with self._turn:
            while (seconds := self._next - self._clock()) > 0:
                self._sleep(seconds)
            with self._lock:
                self._next = max(self._next, self._clock() + objects / (self._present * MARGIN))

    def taken(self) -> None:
        """Note that the bucket took a batch."""
        with self._lock:
            self._present = min(self.rate, self._present + self.rate / 10)

    def refused(self, seconds: float) -> None:
        """Note that the bucket is too busy, and let nobody ask before so many seconds have passed."""
        with self._lock:
            self._present = max(self._present / 2, min(SLOWEST, self.rate))
            self._next = max(self._next, self._clock() + seconds)
