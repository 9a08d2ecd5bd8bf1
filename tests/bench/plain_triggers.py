"""Triggers that wait for nothing: one sleeps, one looks at what others do to the event loop. They import no library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from tests.bench.notes import note

PROBE_SECONDS = 0.01


class Sleeping(BaseTrigger):
    """A wait for nothing, which costs what Airflow itself costs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (f"{type(self).__module__}.{type(self).__qualname__}", {"name": self.name})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.name)
        await asyncio.Event().wait()
        yield TriggerEvent({})


class LoopProbe(BaseTrigger):
    """Tells once a second how long the event loop was kept from it at most, in ms of three clocks.

    `wall` is by how much a short sleep was longer than asked for. `thread` and `process` are the processor time that
    the loop's thread and all threads used during a sleep, which a throttled process can't be blocked for longer than:
    both count what ran during the sleep itself too, so they overstate.
    """

    def __init__(self, name: str = "probe") -> None:
        super().__init__()
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (f"{type(self).__module__}.{type(self).__qualname__}", {"name": self.name})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        note("started", self.name)
        number = 0
        while True:
            worst = await _worst_of_a_second()
            note("loop", f"{self.name}-{number}", **worst)
            number += 1
        yield TriggerEvent({})


async def _worst_of_a_second() -> dict[str, float]:
    clocks = {"wall": time.perf_counter, "thread": time.thread_time, "process": time.process_time}
    worst = dict.fromkeys(clocks, 0.0)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        before = {name: clock() for name, clock in clocks.items()}
        await asyncio.sleep(PROBE_SECONDS)
        for name, clock in clocks.items():
            spent = clock() - before[name] - (PROBE_SECONDS if name == "wall" else 0.0)
            worst[name] = max(worst[name], 1000 * spent)
    return worst
