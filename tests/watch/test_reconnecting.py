"""When a watch is opened again, and when that is given up."""

from __future__ import annotations

import asyncio
import time

import pytest

from everstep.clients import errors
from everstep.watch import reconnecting
from everstep.watch.reconnecting import Troubles


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, in seconds, which pass at once."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(reconnecting.asyncio, "sleep", note)
    return waited


async def test_waits_grow_while_nothing_works_and_start_small_after_something_has(waits: list[float]) -> None:
    troubles = Troubles("n")
    for _ in range(12):
        await troubles.sit_out(errors.Unavailable("away"), knows_us=True)
    assert 0.1 <= waits[0] <= 0.2
    assert 7.5 <= waits[-1] <= 15.0
    troubles.opened()
    troubles.heard({"type": "MODIFIED"})
    await troubles.sit_out(errors.Unavailable("away"), knows_us=True)
    assert waits[-1] <= 0.2


async def test_a_service_that_says_when_is_obeyed_within_reason(waits: list[float]) -> None:
    troubles = Troubles("n")
    await troubles.sit_out(errors.Unavailable("later", retry_after=7.0), knows_us=True)
    await troubles.sit_out(errors.Unavailable("much later", retry_after=7000.0), knows_us=True)
    assert 7.0 < waits[0] <= 7.2
    assert 60.0 < waits[1] <= 61.0


async def test_a_watch_that_ended_plainly_is_opened_at_once_unless_it_ends_at_once(waits: list[float]) -> None:
    troubles = Troubles("n")
    troubles.opened()
    troubles.heard({"type": "MODIFIED"})
    await troubles.ended_plainly()
    assert waits == []
    for _ in range(3):
        troubles.opened()
        troubles.heard({"type": "BOOKMARK"})
        await troubles.ended_plainly()
    assert len(waits) == 3


async def test_refused_credentials_are_renewed_at_once_and_believed_from_a_stranger(waits: list[float]) -> None:
    troubles = Troubles("n")
    await troubles.sit_out(errors.Unauthenticated("who?"), knows_us=False)
    assert waits == []
    with pytest.raises(errors.Unauthenticated):
        await troubles.sit_out(errors.Unauthenticated("who?"), knows_us=False)


REFUSALS = [errors.Unauthenticated, errors.Forbidden, errors.NotFound, errors.NotConfigured]


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_service_that_knew_us_may_refuse_for_a_while(
    kind: type[errors.RemoteError], waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = Troubles("n")
    for _ in range(5):
        await troubles.sit_out(kind("no"), knows_us=True)
    assert len(waits) == (4 if kind is errors.Unauthenticated else 5)
    monkeypatch.setattr(reconnecting, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(kind):
        await troubles.sit_out(kind("no"), knows_us=True)


async def test_refusals_long_apart_are_not_one_long_refusal(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting, "PATIENCE_SECONDS", 0.05)
    troubles = Troubles("n")
    await troubles.sit_out(errors.Unauthenticated("not read yet"), knows_us=True)
    await asyncio.to_thread(time.sleep, 0.1)
    await troubles.sit_out(errors.Unavailable("away"), knows_us=True)
    await troubles.sit_out(errors.Unauthenticated("not read yet"), knows_us=True)


@pytest.mark.parametrize("kind", [errors.Forbidden, errors.NotFound, errors.NotConfigured])
async def test_refusals_of_a_stranger_are_raised(kind: type[errors.RemoteError], waits: list[float]) -> None:
    with pytest.raises(kind):
        await Troubles("n").sit_out(kind("no"), knows_us=False)
    assert waits == []


async def test_what_no_other_try_can_help_is_raised(waits: list[float]) -> None:
    with pytest.raises(errors.Invalid):
        await Troubles("n").sit_out(errors.Invalid("no"), knows_us=True)
    assert waits == []


async def test_a_version_that_is_gone_is_asked_for_soon_but_not_in_a_busy_loop(waits: list[float]) -> None:
    troubles = Troubles("n")
    for _ in range(8):
        await troubles.sit_out(errors.Gone("too old"), knows_us=True)
    assert waits[0] <= 0.2
    assert waits[-1] >= 5.0
