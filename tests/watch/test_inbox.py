"""Where one wait gets told what concerns it."""

from __future__ import annotations

import asyncio
import time

import pytest

from everstep.watch.inbox import Inbox


async def test_what_is_told_is_taken_in_order() -> None:
    inbox = Inbox()
    for told in (1, None, 2):
        inbox.put(told)
    assert [await inbox.take() for _ in range(3)] == [1, None, 2]
    with pytest.raises(TimeoutError):
        await inbox.take(0)


async def test_a_loop_that_is_late_takes_what_was_told_meanwhile() -> None:
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take(0.01))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.02, inbox.put, "told")
    time.sleep(0.05)  # noqa: ASYNC251 - the loop is to be late
    assert await taking == "told"


async def test_who_gives_up_leaves_what_is_told_for_the_next() -> None:
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    inbox.put("told")
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await inbox.take(0) == "told"
