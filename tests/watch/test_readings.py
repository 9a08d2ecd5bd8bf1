"""Readings and looks at a bucket, shared by waits, against a real bucket."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from everstep.checkpoints.layout import RunFolder
from everstep.clients import sharing
from everstep.clients.access import StorageAccess
from everstep.clients.errors import Forbidden, Unavailable
from everstep.clients.retrying import Backoff
from everstep.clients.sharing import shared_bucket
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch import progress_looks, readings
from everstep.watch.inbox import Inbox
from everstep.watch.pacing import Pace, PerLoop
from everstep.watch.progress_looks import Progress, progress_of
from everstep.watch.readings import Away, Reading, reading
from everstep.watch.sensor_triggers import CheckpointTrigger

pytestmark = pytest.mark.sandbox


class Counter:
    """Reads an object, and counts how often."""

    def __init__(self) -> None:
        self.reads = 0

    async def __call__(self, bucket: AsyncBucketClient) -> int:
        self.reads += 1
        await bucket.read("any")
        return self.reads


@pytest.fixture
def storage(cloud_storage: Any) -> StorageAccess:
    return StorageAccess(endpoint=cloud_storage.address)


def save(storage: StorageAccess, bucket: str, step: int) -> None:
    """A complete plain Orbax save."""
    for name in ("default/d/1", "commit_success.txt"):
        storage.open(bucket)._bucket.blob(f"lm/checkpoints/{step}/{name}").upload_from_string("")


async def taken(inbox: Inbox) -> Any:
    return await inbox.take(20)


async def test_any_number_of_waits_share_one_reading_and_end_it(storage: StorageAccess, new_bucket: str) -> None:
    counter = Counter()
    inboxes = [Inbox() for _ in range(3)]
    key = ("count", new_bucket)

    def of(inbox: Inbox, least: float) -> Any:
        return reading(storage, new_bucket, key, counter, lambda _, least: least, inbox, least)

    async with of(inboxes[0], 3600.0), of(inboxes[1], 3600.0):
        assert await taken(inboxes[0]) == await taken(inboxes[1]) == Reading(key, 1)
        # One that comes later is told what was just read, unless that is too old for it.
        async with of(inboxes[2], 3600.0):
            assert await taken(inboxes[2]) == Reading(key, 1)
        async with of(inboxes[2], 0.0):
            while (await taken(inboxes[2])).value < 2:
                pass
            assert (await taken(inboxes[0])).value == (await taken(inboxes[1])).value == 2
        assert len(readings._readings) == len(sharing._buckets) == 1
    assert not readings._readings
    assert not sharing._buckets
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("everstep-reading")]


async def test_a_refusal_reaches_all_and_the_next_reading_is_new(
    storage: StorageAccess, new_bucket: str, cloud_storage: Any
) -> None:
    counter = Counter()
    inboxes = [Inbox() for _ in range(3)]

    def of(inbox: Inbox) -> Any:
        return reading(storage, new_bucket, "k", counter, lambda _, least: least, inbox, 0.1)

    cloud_storage.fault(match=f"GET .*{new_bucket}.*any", status=403, times=1)
    async with of(inboxes[0]), of(inboxes[1]):
        assert isinstance(await taken(inboxes[0]), Forbidden)
        assert isinstance(await taken(inboxes[1]), Forbidden)
        async with of(inboxes[2]):
            assert await taken(inboxes[2]) == Reading("k", 2)
    assert not readings._readings


async def test_a_wait_that_wants_readings_more_often_gets_them_at_once_when_it_joins(
    storage: StorageAccess, new_bucket: str
) -> None:
    counter = Counter()
    patient, other = Inbox(), Inbox()

    def of(inbox: Inbox, least: float) -> Any:
        return reading(storage, new_bucket, "k", counter, lambda _, least: least, inbox, least)

    async with of(patient, 3600.0):
        assert (await taken(patient)).value == 1
        async with of(other, 1.0):
            # It is told the reading of a moment ago, and then new ones at its own interval.
            assert [(await taken(other)).value for _ in range(3)] == [1, 2, 3]


async def test_a_bucket_that_is_away_is_read_on_and_the_waits_are_told(
    storage: StorageAccess, new_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "AWAY_SECONDS", 0.0)
    failures = [Unavailable("no answer"), Unavailable("still none")]

    async def read(bucket: AsyncBucketClient) -> str:
        if failures:
            raise failures.pop(0)
        return "read"

    inbox = Inbox()
    async with reading(storage, new_bucket, "k", read, lambda _, least: least, inbox, 60.0):
        assert [await taken(inbox) for _ in range(3)] == [Away("no answer"), Away("still none"), Reading("k", "read")]


async def test_a_sensor_outlasts_a_bucket_that_is_away_for_longer_than_a_request_is_tried(
    storage: StorageAccess, new_bucket: str, cloud_storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "AWAY_SECONDS", 0.1)
    monkeypatch.setattr(StorageAccess, "open_async", impatient)
    save(storage, new_bucket, 5)
    cloud_storage.fault(match=f"GET .*{new_bucket}", status=503, times=6)
    trigger = CheckpointTrigger(
        storage=storage.as_dict(), bucket=new_bucket, run_name="lm", nodes=1, data_parallelism=1,
        min_step=5, deadline=time.time() + 30, poke_interval=0.1, dwell=0.0,
    )  # fmt: skip
    async with asyncio.timeout(20):
        assert (await trigger.wait())["kind"] == "found"


def impatient(access: StorageAccess, bucket: str) -> AsyncBucketClient:
    """A client that gives a request up after its first failure."""
    return AsyncBucketClient(access._async_client, bucket, backoff=Backoff(give_up_after=0.0))


async def test_sensors_on_one_run_share_its_reading(storage: StorageAccess, new_bucket: str) -> None:
    def trigger(min_step: int) -> CheckpointTrigger:
        return CheckpointTrigger(
            storage=storage.as_dict(), bucket=new_bucket, run_name="lm", nodes=1, data_parallelism=1,
            min_step=min_step, deadline=time.time() + 30, poke_interval=0.2, dwell=0.0,
        )  # fmt: skip

    waits = [asyncio.create_task(trigger(step).wait()) for step in (5, 5, 7)]
    async with asyncio.timeout(20):
        while not readings._readings:  # noqa: ASYNC110 - the triggers have no event for that
            await asyncio.sleep(0.01)
    assert len(readings._readings) == 1
    for step in (5, 7):
        save(storage, new_bucket, step)
    events = await asyncio.wait_for(asyncio.gather(*waits), 20)
    assert [event["kind"] for event in events] == ["found"] * 3
    assert events[2]["result"] == {"step": 7, "tier": "durable", "name": "checkpoints/7"}


async def test_a_sensor_that_starts_after_its_deadline_looks_before_it_gives_up(
    storage: StorageAccess, new_bucket: str
) -> None:
    def trigger(min_step: int) -> CheckpointTrigger:
        return CheckpointTrigger(
            storage=storage.as_dict(), bucket=new_bucket, run_name="lm", nodes=1, data_parallelism=1,
            min_step=min_step, deadline=time.time() - 3600, poke_interval=30.0, dwell=0.0,
        )  # fmt: skip

    save(storage, new_bucket, 5)
    assert (await asyncio.wait_for(trigger(5).wait(), 20))["kind"] == "found"
    late = await asyncio.wait_for(trigger(6).wait(), 20)
    assert late == {"kind": "deadline", "message": "the newest complete checkpoint is step 5 (durable checkpoints/5)"}


async def test_waits_on_one_run_share_its_looks_and_are_told_a_restore_once_all_nodes_report(
    storage: StorageAccess, new_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_looks, "_pace", PerLoop(lambda: Pace(6000)))
    folder = RunFolder(new_bucket, "lm")
    bucket = storage.open(new_bucket)
    bucket.write(folder.run_record, {"nodes": 2}, generation=None)
    bucket.write(folder.status, {"launch": 1, "step": 5}, generation=None)
    bucket.write(folder.attempt_node(1, 0, 0), {"rank": 0, "restored_tier": "local"}, generation=None)
    one, other = Inbox(), Inbox()
    async with progress_of(storage, folder, one, 0.1) as wait, progress_of(storage, folder, other, 0.1):
        assert len(progress_looks._looks) == 1
        wait.attempt = (1, 0)
        told = await taken(one)
        assert isinstance(told, Progress)
        assert (told.status, told.restored) == ({"launch": 1, "step": 5}, None)
        assert (await taken(other)).status == {"launch": 1, "step": 5}
        bucket.write(folder.attempt_node(1, 0, 1), {"rank": 1, "restored_tier": "peer"}, generation=None)
        async with asyncio.timeout(20):
            while (told := await taken(one)).restored is None:
                pass
        assert [report["restored_tier"] for report in told.restored] == ["local", "peer"]
        assert (await taken(other)).restored is None
    assert not progress_looks._looks
    assert not sharing._buckets


async def test_looks_at_many_runs_keep_to_the_budget(
    storage: StorageAccess, new_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    class Counted(Pace):
        async def turn(self) -> None:
            nonlocal turns
            await super().turn()
            turns += 1

    monkeypatch.setattr(progress_looks, "_pace", PerLoop(lambda: Counted(600)))
    inbox = Inbox()
    waits = [progress_of(storage, RunFolder(new_bucket, f"r-{number}"), inbox, 0.01) for number in range(20)]
    started = asyncio.get_running_loop().time()
    for wait in waits:
        await wait.__aenter__()
    for _ in range(8):
        assert (await taken(inbox)).status is None
    # Twenty runs want a look a hundred times a second each; ten a second is what all of them get.
    assert turns <= (asyncio.get_running_loop().time() - started) * 10 / 0.9 + 1
    for wait in waits:
        await wait.__aexit__(None, None, None)
    assert not progress_looks._looks


async def test_a_bucket_that_refuses_is_told_and_looked_at_again(
    storage: StorageAccess, new_bucket: str, cloud_storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_looks, "_pace", PerLoop(lambda: Pace(6000)))
    cloud_storage.fault(match=f"GET .*{new_bucket}.*status", status=403, times=1)
    inbox = Inbox()
    async with progress_of(storage, RunFolder(new_bucket, "lm"), inbox, 0.1):
        assert "403" in (await taken(inbox)).failure
        assert (await taken(inbox)).failure == ""


async def test_users_of_one_bucket_share_its_client(storage: StorageAccess, new_bucket: str) -> None:
    async with shared_bucket(storage, new_bucket) as one, shared_bucket(storage, new_bucket) as other:
        assert one is other
        assert await one.read("absent") is None
        async with shared_bucket(storage, "another") as third:
            assert third is not one
    assert not sharing._buckets
