from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from everstep.checkpoints import names
from everstep.checkpoints.catalogue import Shape
from everstep_trainer import durable_saves, guard, history
from everstep_trainer.bucket import Bucket, GenerationConflict
from everstep_trainer.guard import Offer
from everstep_trainer.reports import Reports
from everstep_trainer.run_record import RunRecord
from everstep_trainer.settings import Settings

pytestmark = pytest.mark.sandbox

DIGEST = "D" + "a" * 64


@pytest.fixture
def bucket(cloud_storage: Any, new_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket of the real server, through the real client."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_storage.address)
    return Bucket(new_bucket)


@pytest.fixture
def attempt(settings_with: Callable[..., Settings], bucket: Bucket) -> Callable[[int, int], Settings]:
    def make(launch: int, restart: int) -> Settings:
        return settings_with(
            {
                "EVERSTEP_RUN_URL": f"gs://{bucket.name}/lm",
                "EVERSTEP_LAUNCH": str(launch),
                "EVERSTEP_RESTART_ATTEMPT": str(restart),
            }
        )

    return make


def report(bucket: Bucket, settings: Settings, rank: int = 0, **fields: Any) -> None:
    reports = Reports(bucket, settings)
    reports.update(rank=rank, lineage="a", **fields)
    reports.start()
    assert reports.finish(75, "node rank 3 is gone", phase="stopping", within=20)


def read(bucket: Bucket, path: str) -> dict[str, Any]:
    stored = bucket.read(path)
    assert stored is not None, path
    content: dict[str, Any] = json.loads(stored.content)
    return content


def test_rank_zero_writes_status_and_its_node(bucket: Bucket, attempt: Callable[[int, int], Settings]) -> None:
    settings = attempt(2, 1)
    report(bucket, settings, step=41, loss=1.25, restored_step=40, restored_tier="peer", final={"weights_sha256": "x"})
    status = read(bucket, settings.folder.status)
    assert (status["launch"], status["restart"], status["step"], status["loss"]) == (2, 1, 41, 1.25)
    assert (status["phase"], status["weights_sha256"]) == ("stopping", "x")
    node = read(bucket, settings.folder.attempt_node(2, 1, 0))
    assert (node["restored_step"], node["restored_tier"], node["last_step"]) == (40, "peer", 41)
    assert (node["ended"]["code"], node["ended"]["name"]) == (75, "PEER_LOST")


def test_other_ranks_write_only_their_node(bucket: Bucket, attempt: Callable[[int, int], Settings]) -> None:
    settings = attempt(1, 0)
    report(bucket, settings, rank=3)
    assert bucket.read(settings.folder.status) is None
    assert read(bucket, settings.folder.attempt_node(1, 0, 3))["rank"] == 3


@pytest.mark.parametrize(("first", "second", "kept"), [((1, 3), (2, 0), (2, 0)), ((2, 0), (1, 3), (2, 0))])
def test_an_older_attempt_never_overwrites_a_newer_ones_status(
    bucket: Bucket,
    attempt: Callable[[int, int], Settings],
    first: tuple[int, int],
    second: tuple[int, int],
    kept: tuple[int, int],
) -> None:
    for launch, restart in (first, second):
        report(bucket, attempt(launch, restart))
    status = read(bucket, attempt(1, 0).folder.status)
    assert (status["launch"], status["restart"]) == kept
    for launch, restart in (first, second):
        assert read(bucket, attempt(1, 0).folder.attempt_node(launch, restart, 0))["restart"] == restart


def test_a_newer_attempt_takes_over_while_an_older_one_still_writes(
    bucket: Bucket, attempt: Callable[[int, int], Settings]
) -> None:
    old = Reports(bucket, attempt(1, 0), seconds=0.05)
    old.update(rank=0)
    old.start()
    report(bucket, attempt(1, 1), step=7)
    old.update(urgent=True, step=3)
    assert old.finish(0, "done", phase="done", within=20)
    assert read(bucket, attempt(1, 0).folder.status)["restart"] == 1


def test_preconditions(bucket: Bucket) -> None:
    generation = bucket.write("a", b"{}", if_generation=0)
    with pytest.raises(GenerationConflict):
        bucket.write("a", b"{}", if_generation=0)
    assert bucket.write("a", b"[]", if_generation=generation) != generation
    assert bucket.read("missing") is None


def put_backup(bucket: Bucket, name: str, step: int, nodes: int) -> None:
    for node in range(nodes):
        bucket.write(f"lm/{name}/{names.meta_name('lm', step, node)}", DIGEST.encode())
    bucket.write(f"lm/{name}/{names.data_name(DIGEST)}/state/manifest.ocdbt", b"x")


def test_the_guard_sees_what_the_bucket_holds(bucket: Bucket, attempt: Callable[[int, int], Settings]) -> None:
    settings = attempt(1, 0)
    shape = Shape(4, 1, 2)

    def look(offer: Offer, **changes: Any) -> guard.History:
        return history.read_history(bucket, settings.folder, shape, RunRecord(**changes), offer, None)

    assert look(Offer(None)) == guard.History()
    put_backup(bucket, "2025-10-22_09-05", 40, 4)
    put_backup(bucket, "2025-10-22_10-05", 60, 1)
    found = look(Offer(None))
    assert found.known_good is not None
    assert (found.known_good.name, found.traces) == ("2025-10-22_09-05", ("2025-10-22_10-05", "2025-10-22_09-05"))
    for step, marker in ((20, True), (70, True), (80, False)):
        bucket.write(settings.folder.durable_step(step) + "_CHECKPOINT_METADATA", b"{}")
        if marker:
            bucket.write(settings.folder.durable_marker(step), b"")
    assert look(Offer(60)).durable_step == 70
    assert look(Offer(70)).durable_step is None
    assert look(Offer(None), bound_step=69).durable_step == 20
    assert look(Offer(None), quarantined=("checkpoints/70",)).durable_step == 20


def test_an_unfinished_durable_save_is_cleared_and_a_complete_one_never_touched(
    bucket: Bucket, attempt: Callable[[int, int], Settings]
) -> None:
    folder = attempt(1, 0).folder
    for step in (7, 70):
        bucket.write(folder.durable_step(step) + "d/part", b"{}")
    bucket.write(folder.durable_marker(70), b"{}")
    assert not durable_saves.is_complete_or_cleared(bucket, folder, 7)
    assert bucket.names_below(folder.durable_step(7)) == []
    for _ in range(2):
        assert durable_saves.is_complete_or_cleared(bucket, folder, 70)
    assert len(bucket.names_below(folder.durable_step(70))) == 2
    assert not durable_saves.is_complete_or_cleared(bucket, folder, 8), "nothing is there"
    for name in ("__0_0.distcp", ".metadata"):
        bucket.write(folder.durable_step(9) + name, b"{}")
    assert durable_saves.is_complete_or_cleared(bucket, folder, 9), "one of PyTorch DCP"
    assert len(bucket.names_below(folder.durable_step(9))) == 2
