"""Budgets of an event loop."""

from __future__ import annotations

import asyncio

from everstep.watch.pacing import Pace, PerLoop, Turnstile


async def test_turns_come_in_order_and_no_faster_than_the_pace() -> None:
    pace = Pace(per_minute=60 * 50)
    loop = asyncio.get_running_loop()
    came: list[tuple[int, float]] = []

    async def come(number: int) -> None:
        await pace.turn()
        came.append((number, loop.time()))

    started = loop.time()
    await asyncio.gather(*(come(number) for number in range(11)))
    assert [number for number, _ in came] == list(range(11))
    # Ten gaps of 20 ms, each with a tenth of chance in it.
    assert came[-1][1] - started >= 10 * 0.018 - 0.001


async def test_who_gives_up_does_not_keep_those_who_come_later() -> None:
    pace = Pace(per_minute=60)
    await pace.turn()
    given_up = [asyncio.create_task(pace.turn()) for _ in range(1000)]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    # The turn after the first one, not after a thousand.
    async with asyncio.timeout(10):
        await pace.turn()


async def test_a_thousand_that_come_at_once_pass_a_few_in_a_round() -> None:
    turnstile = Turnstile(25)
    passed = 0
    rounds: list[int] = []

    async def come() -> None:
        nonlocal passed
        await turnstile.enter()
        passed += 1

    tasks = [asyncio.create_task(come()) for _ in range(1000)]
    while passed < 1000:
        before = passed
        await asyncio.sleep(0)
        rounds.append(passed - before)
    assert max(rounds) <= 25
    await asyncio.gather(*tasks)
    # It is open again at once.
    await asyncio.wait_for(turnstile.enter(), 1)


async def test_who_gives_up_in_the_queue_takes_no_place() -> None:
    turnstile = Turnstile(1)
    first, given_up, waiting = [asyncio.create_task(turnstile.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait_for(asyncio.gather(first, waiting), 1)
    assert given_up.cancelled()


def test_each_event_loop_has_its_own() -> None:
    kept: PerLoop[object] = PerLoop(object)

    async def get() -> tuple[object, object]:
        return kept.get(), kept.get()

    one, again = asyncio.run(get())
    other, _ = asyncio.run(get())
    assert one is again
    assert other is not one
    assert len(kept._kept) == 1
