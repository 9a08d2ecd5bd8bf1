"""How fast a bucket may be asked: a rate that many threads keep together, and slow down when the bucket is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MARGIN = 0.9
"""Of the rate: how fast batches follow each other. A batch is a tenth of the rate at most."""
SLOWEST = 1.0
"""Below this many objects per second a rate is not lowered."""
SECOND = 1.0
LOOK_SECONDS = 0.01


@dataclass
class _Change:
    objects: int
    ended: float | None = None


class Pace:
    """Keeps changes below a number of objects per second, in whichever second the bucket makes them.

    After a batch of n objects nobody sends for n / rate seconds (and a little more). Time that nobody used is not saved
    up, so there are no bursts. When the bucket made a change is not known, only that it was before the answer came: so
    what was answered within the last second, and what is under way, counts against the rate before more is sent. Each
    refusal (429, 503) halves the rate and makes everybody wait; each batch that was taken brings back a tenth of it.

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
        self._recent: list[_Change] = []
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

    @contextmanager
    def changing(self, objects: int) -> Iterator[None]:
        """Wait until so many objects may be changed; the block sends the request and waits for its answer."""
        change = _Change(objects)
        with self._turn:
            while (seconds := self._begun(change)) > 0:
                self._sleep(seconds)
        try:
            yield
        finally:
            with self._lock:
                change.ended = self._clock()

    def taken(self) -> None:
        """Note that the bucket took a batch."""
        with self._lock:
            self._present = min(self.rate, self._present + self.rate / 10)

    def refused(self, seconds: float) -> None:
        """Note that the bucket is too busy, and let nobody ask before so many seconds have passed."""
        with self._lock:
            self._present = max(self._present / 2, min(SLOWEST, self.rate))
            self._next = max(self._next, self._clock() + seconds)

    def _begun(self, change: _Change) -> float:
        """Begin a change and return 0, or how many seconds to wait before asking again."""
        with self._lock:
            now = self._clock()
            if self._next > now:
                return self._next - now
            self._recent = [each for each in self._recent if each.ended is None or each.ended > now - SECOND]
            if self._recent and sum(each.objects for each in self._recent) + change.objects > self.rate:
                ended = [each.ended for each in self._recent if each.ended is not None]
                return min(ended) + SECOND - now if ended else LOOK_SECONDS
            self._recent.append(change)
            self._next = now + change.objects / (self._present * MARGIN)
            return 0.0
