"""The rate at which a bucket is changed, seen from the bucket: threads that send, and answers that take their time."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.retention import most_in_a_second

from everstep.clients.pace import Pace

RATE = 500
BATCH = 50


def changes(slowest: float, seconds: float, *, threads: int = 8) -> list[tuple[float, int]]:
    """When each batch was changed: some time between its sending and its answer, which takes up to so many seconds."""
    pace = Pace(RATE)
    changed: list[tuple[float, int]] = []
    lock = threading.Lock()
    end = time.monotonic() + seconds

    def send(seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < end:
            with pace.changing(BATCH):
                time.sleep(chance.random() * slowest)
                with lock:
                    changed.append((time.monotonic(), BATCH))
                time.sleep(chance.random() * slowest)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    return sorted(changed)


def test_no_second_sees_more_than_the_rate_however_late_answers_come() -> None:
    seen = changes(slowest=0.4, seconds=6)
    assert len(seen) > 20
    assert RATE / 2 < most_in_a_second(seen) <= RATE


def test_quick_answers_bring_most_of_the_rate() -> None:
    seen = changes(slowest=0.01, seconds=4)
    assert most_in_a_second(seen) <= RATE
    assert sum(objects for _, objects in seen) / 4 > 0.6 * RATE


def test_a_refusal_halves_the_rate_and_what_is_taken_brings_it_back() -> None:
    pace = Pace(100)
    pace.refused(0.2)
    started = time.monotonic()
    with pace.changing(1):
        assert time.monotonic() - started >= 0.19
    assert pace.present == 50
    for _ in range(5):
        pace.taken()
    assert pace.present == 100
    for _ in range(20):
        pace.refused(0)
    assert pace.present == 1, "and never comes to a standstill"
