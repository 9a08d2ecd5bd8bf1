"""Both bucket clients, and the reading of a run's folder, against a real server."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.checkpoints.written_metadata import metadata_of

from everstep.checkpoints.catalogue import BackupState, Shape
from everstep.checkpoints.layout import RunFolder
from everstep.clients import errors, run_folder
from everstep.clients.access import StorageAccess
from everstep.clients.requests import ReadRequest, Steps
from everstep.clients.storage import BucketClient

pytestmark = pytest.mark.sandbox

NOW = datetime(2099, 11, 29, 12, 0, tzinfo=UTC)  # long after the objects were made
DIGEST = "D" + "ab" * 32
OTHER = "D" + "cd" * 32


@pytest.fixture
def bucket(cloud_storage: Any) -> BucketClient:
    """A new hierarchical bucket."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    cloud_storage.post(
        "/storage/v1/b?project=everstep",
        {
            "name": name,
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    return StorageAccess(endpoint=cloud_storage.address).open(name)


def put(bucket: BucketClient, name: str, body: str | bytes = b"x") -> None:
    bucket._bucket.blob(name).upload_from_string(body)


def backup(bucket: BucketClient, run: str, name: str, step: int, nodes: int, digest: str = DIGEST) -> None:
    for node in range(nodes):
        put(bucket, f"{run}/{name}/{run}-s{step}-n{node}-w0.meta", digest)
    put(bucket, f"{run}/{name}/{digest}.data/manifest.ocdbt")


def test_of_two_writers_on_one_generation_one_wins(bucket: BucketClient) -> None:
    first = bucket.write("a/lease.json", {"n": 1}, generation=0)
    with pytest.raises(errors.Conflict):
        bucket.write("a/lease.json", {"n": 2}, generation=0)
    second = bucket.write("a/lease.json", {"n": 2}, generation=first)
    with pytest.raises(errors.Conflict):
        bucket.write("a/lease.json", {"n": 3}, generation=first)
    stored = bucket.read("a/lease.json")
    assert stored is not None
    assert (json.loads(stored.body), stored.generation) == ({"n": 2}, second)
    with pytest.raises(errors.Conflict):
        bucket.delete("a/lease.json", generation=first)
    assert bucket.delete("a/lease.json", generation=second)
    assert bucket.read("a/lease.json") is None


def test_a_bucket_that_is_not_there_is_told_apart_from_an_object(cloud_storage: Any, bucket: BucketClient) -> None:
    assert bucket.is_hierarchical() is True
    absent = StorageAccess(endpoint=cloud_storage.address).open("bucket-that-is-not-there")
    with pytest.raises(errors.NotFound):
        absent.is_hierarchical()
    with pytest.raises(errors.NotFound):
        absent.read("a")


async def test_a_run_folder_reads_the_same_by_both_clients(cloud_storage: Any, bucket: BucketClient) -> None:
    folder = RunFolder(bucket.name, "lm")
    backup(bucket, "lm", "2026-11-29_10-00", 40, 4)
    backup(bucket, "lm", "2026-11-29_11-00", 80, 3)
    backup(bucket, "lm", "2026-11-29_09-00", 20, 4)
    put(bucket, "lm/checkpoints/60/commit_success.txt")
    put(bucket, "lm/checkpoints/60/d/1")
    put(bucket, "lm/checkpoints/90/d/1")
    put(bucket, "lm/everstep/run.json", json.dumps({"launch": 2, "bound_step": None}))
    put(bucket, "lm/everstep/status.json", json.dumps({"step": 95}))
    put(bucket, "lm/restore.version", "2026-11-29_10-00\n")
    put(bucket, "lm-other/2026-11-29_11-30/x")
    shape = Shape(4, 1, None)
    blocking = bucket.run(run_folder.contents(folder, shape, now=NOW))
    async with StorageAccess(endpoint=cloud_storage.address).open_async(bucket.name) as client:
        awaited = await client.run(run_folder.contents(folder, shape, now=NOW))
        quick = await client.run(run_folder.contents(folder, shape, now=NOW, everything=False))
    assert blocking == awaited
    assert [(each.name, each.step, each.state) for each in blocking.catalogue.backups] == [
        ("2026-11-29_11-00", 80, BackupState.INCOMPLETE),
        ("2026-11-29_10-00", 40, BackupState.COMPLETE),
        ("2026-11-29_09-00", 20, BackupState.COMPLETE),
    ]
    assert blocking.durable_steps == (60,)
    assert blocking.incomplete_durable_steps == (90,)
    assert blocking.forced == "2026-11-29_10-00"
    assert blocking.run_record == {"launch": 2, "bound_step": None}
    assert blocking.status == {"step": 95}
    assert blocking.lease is None
    good = blocking.last_known_good
    assert good is not None
    assert (good.step, good.tier) == (60, "durable")
    assert quick.last_known_good == good


def test_durable_saves_of_pytorch_count_by_their_own_marker(bucket: BucketClient) -> None:
    marker = metadata_of([("__0_0.distcp", 0, 4)])
    for name, body in {
        "10/.metadata": marker,
        "10/__0_0.distcp": b"data",
        "20/__0_0.distcp": b"data",
        "30/.metadata": marker,
        "30/.metadata.tmp": marker,
        "30/__0_0.distcp": b"data",
        "40/.metadata": marker,
        "40/__0_0.distcp": b"",
        "50/.metadata": marker,
        "50/__0_0.distcp": b"dat",
    }.items():
        put(bucket, f"dcp/checkpoints/{name}", body)
    put(bucket, "dcp/checkpoints/5/commit_success.txt")
    put(bucket, "dcp/checkpoints/5/default/d/1")
    contents = bucket.run(run_folder.contents(RunFolder(bucket.name, "dcp"), Shape(4, 1, None), now=NOW))
    assert contents.durable_steps == (5, 10)
    assert contents.incomplete_durable_steps == (20, 30, 40, 50)
    good = contents.last_known_good
    assert good is not None
    assert (good.step, good.tier, good.name) == (10, "durable", "checkpoints/10")


def test_looking_for_the_last_known_good_stops_early(bucket: BucketClient) -> None:
    for hour in range(10):
        backup(bucket, "lm", f"2026-11-29_{hour:02d}-00", 10 + hour, 1)
    contents = bucket.run(run_folder.contents(RunFolder(bucket.name, "lm"), Shape(1), everything=False, now=NOW))
    assert contents.last_known_good is not None
    assert contents.last_known_good.step == 19
    assert len(contents.unjudged) == 6


def test_a_meta_that_names_other_data_is_read(bucket: BucketClient) -> None:
    backup(bucket, "lm", "2026-11-29_10-00", 40, 2)
    put(bucket, "lm/2026-11-29_10-00/lm-s40-n1-w0.meta", OTHER)
    contents = bucket.run(run_folder.contents(RunFolder(bucket.name, "lm"), Shape(2), now=NOW))
    assert contents.catalogue.backups[0].state is BackupState.INCOMPLETE
    assert any("data" in reason for reason in contents.catalogue.backups[0].reasons)


def test_an_empty_folder_is_empty(bucket: BucketClient) -> None:
    contents = bucket.run(run_folder.contents(RunFolder(bucket.name, "lm"), Shape(2), now=NOW))
    assert contents.is_empty
    assert contents.last_known_good is None
    assert bucket.run(run_folder.attempts(RunFolder(bucket.name, "lm"))) == {}


def test_reports_are_read_by_attempt_in_order_of_rank(bucket: BucketClient) -> None:
    folder = RunFolder(bucket.name, "lm")
    for launch, restart, rank in [(1, 0, 10), (1, 0, 2), (2, 1, 0)]:
        put(bucket, folder.attempt_node(launch, restart, rank), json.dumps({"rank": rank}))
    put(bucket, folder.attempt_prefix(2, 1) + "node-1.json", "torn {")
    found = bucket.run(run_folder.attempts(folder))
    assert {key: [each["rank"] for each in reports] for key, reports in found.items()} == {(1, 0): [2, 10], (2, 1): [0]}
    assert bucket.run(run_folder.attempts(folder, 2)).keys() == {(2, 1)}


async def test_passing_failures_of_storage_are_sat_out(cloud_storage: Any, bucket: BucketClient) -> None:
    put(bucket, "a/b", "c")
    cloud_storage.fault(match=f"{bucket.name}/o", status=503, times=2)
    async with StorageAccess(endpoint=cloud_storage.address).open_async(bucket.name) as client:
        assert [each.name for each in (await client.list_level("a/")).objects] == ["b"]
        cloud_storage.fault(match=f"{bucket.name}/o", status=403, times=1)
        with pytest.raises(errors.Forbidden):
            await client.list_level("a/")


async def test_a_reading_that_fails_leaves_no_request_under_way(cloud_storage: Any, bucket: BucketClient) -> None:
    def reading() -> Steps[None]:
        yield [ReadRequest("refused"), ReadRequest("away")]

    cloud_storage.fault(match=f"GET .*{bucket.name}.*away", status=503, times=10**9)
    cloud_storage.fault(match=f"GET .*{bucket.name}.*refused", status=403, times=1)
    before = asyncio.all_tasks()
    async with StorageAccess(endpoint=cloud_storage.address).open_async(bucket.name) as client:
        with pytest.raises(errors.Forbidden):
            await client.run(reading())
    assert asyncio.all_tasks() == before
