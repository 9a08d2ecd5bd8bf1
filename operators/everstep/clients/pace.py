"""How fast a bucket may be asked: a rate that many threads keep together, and slow down when the bucket is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MARGIN = 0.95
"""Of the rate: batches that are sent evenly arrive a little unevenly, and no second may see more than the rate."""
SLOWEST = 1.0
"""Below this many objects per second a rate is not lowered."""


class Pace:
    """Keeps changes below a number of objects per second.

    A batch of n objects takes the next n / rate seconds (and a little more) for itself, so that nothing is saved up for
    a burst. Each refusal (429, 503) halves the rate and makes everybody wait; each batch that was taken brings back a
    tenth of it.

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

    @property
    def present(self) -> float:
        """Return the rate at the moment, in objects per second."""
        return self._present

    def wait(self, objects: int) -> None:
        """Wait until so many objects may be changed."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + objects / (self._present * MARGIN)
        if start > now:
            self._sleep(start - now)

    def taken(self) -> None:
        """Note that the bucket took a batch."""
        with self._lock:
            self._present = min(self.rate, self._present + self.rate / 10)

    def refused(self, seconds: float) -> None:
        """Note that the bucket is too busy, and let nobody ask before so many seconds have passed."""
        with self._lock:
            self._present = max(self._present / 2, min(SLOWEST, self.rate))
            self._next = max(self._next, self._clock() + seconds)
