"""Two nodes with real replicators: saves, replication, backups and every way in which a step is restored."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import requests

from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.scripted_job import JobBackups, ScriptedJob, appear, logged, steps, text_of, wait_in
from everstep_sandbox.checkpointing.testing import StandaloneNodes, create_bucket

pytestmark = pytest.mark.sandbox

FRESH = ["run-s0-n0-w0.restore", "run-s0-n1-w0.restore"]
STEP_5 = ["run-s5-n0-w0.restore", "run-s5-n1-w0.restore"]
STEP_9 = ["run-s9-n0-w0.restore", "run-s9-n1-w0.restore"]
HOUR = {"backup-interval-minutes": 60}


def test_a_first_start_finds_nothing_and_says_so(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes)
    assert job.start() == FRESH
    assert job.prerestore(0) == "{}"
    assert (job.disks[0] / FRESH[0]).stat().st_size == 0
    assert "No valid checkpoints found anywhere" in (job.disks[0] / "replicator.errors").read_text()
    assert not (job.disks[0] / "replicator.failed").exists()


def test_a_restart_restores_from_the_nodes_themselves(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    job.save(9, ["b0", "b1"])
    job.saved_everywhere(9)
    assert job.start() == STEP_9
    assert job.prerestore(1) == "restore-step: 9"
    assert [job.restored(rank) for rank in (0, 1)] == ["b0", "b1"]
    assert "New config" in nodes.log("node-0").read_text()


def test_a_new_node_gets_its_data_from_a_peer(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    for disk, other in ((job.disks[0], "n1"), (job.disks[1], "n0")):
        appear(disk / f"run-s5-{other}-w0.meta")
    nodes.replace("node-1")
    assert job.start() == STEP_5
    assert [job.restored(rank) for rank in (0, 1)] == ["a0", "a1"]
    assert job.prerestore(1) == "restore-step: 5"


def test_survivors_keep_their_rank_when_they_move_in_the_jobset(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    appear(job.disks[1] / "run-s5-n0-w0.meta")
    nodes.replace("node-0")
    assert job.start(["node-1", "node-0"]) == STEP_5
    assert job.disks[1] == nodes.ram_disk("node-1")
    assert [job.restored(rank) for rank in (0, 1)] == ["a0", "a1"]


def test_a_backup_holds_all_and_is_restored_when_ram_is_lost(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    job = ScriptedJob(nodes)
    job.start()
    before = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M")
    job.save(5, ["a0", "a1"])
    (backup,) = bucket.wait_for(bucket.backups)
    assert before <= backup <= datetime.now(UTC).strftime("%Y-%m-%d_%H-%M")
    metas, data = bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 2))
    assert metas == ["run-s5-n0-w0.meta", "run-s5-n1-w0.meta"]
    body = bucket.folder.read(f"{backup}/{metas[0]}")
    assert body is not None and f"{body.decode()}.data" in data
    nodes.wipe_ram("node-0", "node-1")
    assert job.start() == STEP_5
    assert job.prerestore(0).splitlines() == ["restore-step: 5", f"restore-backup: {backup}"]
    assert [job.restored(rank) for rank in (0, 1)] == ["a0", "a1"]


def test_no_backup_is_made_before_the_interval_is_over(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    job.save(9, ["b0", "b1"])
    job.saved_everywhere(9)
    assert bucket.backups() == []


def test_with_data_parallelism_only_the_last_group_uploads_and_metas_are_inferred(
    nodes: StandaloneNodes, bucket: JobBackups
) -> None:
    job = ScriptedJob(nodes, **{"assume-data-parallelism": 2})
    job.start()
    job.save(5, ["same", "same"])
    (backup,) = bucket.wait_for(bucket.backups)
    metas, _ = bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 1))
    assert "only .meta files" in nodes.log("node-0").read_text()
    assert "all files" in nodes.log("node-1").read_text()
    bucket.folder.delete(f"{backup}/{metas[0]}")
    nodes.wipe_ram("node-0", "node-1")
    assert job.start() == STEP_5
    assert [job.restored(rank) for rank in (0, 1)] == ["same", "same"]


def test_equal_data_is_uploaded_by_one_node_only(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    """Files of equal data are named by chance: those of two nodes under one name would not fit together."""
    with slow_uploads(bucket, 300):
        job = ScriptedJob(nodes)
        job.start()
        for rank, disk in enumerate(job.disks):
            (disk / "aside").mkdir()
            (disk / "aside" / f"file-{rank}").write_text("same")
            (disk / "aside").rename(disk / "5")
        (backup,) = bucket.wait_for(bucket.backups)
        _, (data,) = bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 1))
        for node in nodes.names:
            logged(nodes.log(node), "Successful: backup for step 5")
    files, _ = bucket.folder.list(f"{backup}/{data}/")
    assert len([name for name in files if name]) == 1
    assert not [name for name in bucket.listing(backup)[1] if name.endswith(".tmp")]


def test_a_node_that_uploads_for_its_column_gives_up_the_newest_step_meanwhile(
    nodes: StandaloneNodes, bucket: JobBackups
) -> None:
    with slow_uploads(bucket, 3000):
        job = ScriptedJob(nodes, **{"assume-data-parallelism": 2})
        job.start()
        job.save(5, ["same 5", "same 5"])
        job.write_save(9, ["same 9", "same 9"])
        wait_in(job.disks[1], lambda found: steps(found) == {5})
        wait_in(job.disks[0], lambda found: 9 in steps(found))
        assert job.start() == STEP_9, "the other group still holds it"
        assert [job.restored(rank) for rank in (0, 1)] == ["same 9", "same 9"]
    for disk in job.disks:
        wait_in(disk, lambda found: len(list(found.glob("*.meta"))) == 1)


def test_with_data_parallelism_peers_exchange_metas_only(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR, **{"assume-data-parallelism": 2})
    job.start()
    job.save(5, ["kept apart 0", "kept apart 1"])
    appear(job.disks[0] / "run-s5-n1-w0.meta")
    assert len(list(job.disks[0].glob("*.data"))) == 1


def test_a_forced_restore_wins_over_newer_steps_and_is_consumed_by_the_next_save(
    nodes: StandaloneNodes, bucket: JobBackups
) -> None:
    job = ScriptedJob(nodes)
    job.start()
    job.save(5, ["a0", "a1"])
    (backup,) = bucket.wait_for(bucket.backups)
    bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 2))
    kept = "2020-01-02_03-04"
    bucket.folder.rename_folder(f"{backup}/", f"{kept}/")
    job.save(9, ["b0", "b1"])
    job.saved_everywhere(9)
    bucket.folder.write("restore.version", f"{kept}\n".encode())
    assert job.start() == STEP_5
    assert [job.restored(rank) for rank in (0, 1)] == ["a0", "a1"]
    assert bucket.folder.read("restore.version") is not None
    for disk in job.disks:
        wait_in(disk, lambda found: steps(found) == {5})
    job.save(7, ["c0", "c1"])
    bucket.wait_for(lambda: bucket.folder.read("restore.version") is None)


def test_a_forced_restore_that_is_asked_for_after_the_start_is_lost(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    bucket.folder.write("restore.version", b"2020-01-02_03-04")
    job.save(5, ["a0", "a1"])
    bucket.wait_for(lambda: bucket.folder.read("restore.version") is None)


def test_a_forced_but_invalid_backup_means_a_fresh_start_and_empty_ram(
    nodes: StandaloneNodes, bucket: JobBackups
) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    job.replicated(5)
    bucket.folder.write("restore.version", b"2020-01-02_03-04")
    assert job.start() == FRESH
    wait_in(job.disks[0], lambda found: not list(found.glob("*.data")))


def test_another_job_on_the_nodes_clears_what_the_first_one_left(nodes: StandaloneNodes) -> None:
    first = ScriptedJob(nodes, **HOUR)
    first.start()
    first.save(5, ["a0", "a1"])
    filler = ScriptedJob(nodes, **HOUR, **{"job-name": "filler"})
    assert filler.start() == ["filler-s0-n0-w0.restore", "filler-s0-n1-w0.restore"]
    for disk in filler.disks:
        wait_in(disk, lambda found: not [path for path in found.iterdir() if path.suffix in (".meta", ".data")])


def test_a_save_of_step_0_is_lost_and_ends_the_replicators(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(0, ["a0", "a1"])
    appear(job.disks[0] / "run-s0-n1-w0.meta")
    assert job.start() == FRESH
    job.save(5, ["b0", "b1"])
    for disk in job.disks:
        text = text_of(disk / "replicator.failed")
        assert "KeyError: 'replicated-step'" in text


def test_a_step_0_in_ram_hides_the_backups(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    job = ScriptedJob(nodes)
    job.start()
    job.save(5, ["a0", "a1"])
    (backup,) = bucket.wait_for(bucket.backups)
    bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 2))
    nodes.wipe_ram("node-0", "node-1")
    bucket.folder.rename_folder(f"{backup}/", "aside/")
    job = ScriptedJob(nodes, **HOUR)
    assert job.start() == FRESH
    job.save(0, ["b0", "b1"])
    appear(job.disks[0] / "run-s0-n1-w0.meta")
    bucket.folder.rename_folder("aside/", f"{backup}/")
    assert job.start() == FRESH


def test_an_empty_config_is_deleted_and_waited_for_again(nodes: StandaloneNodes) -> None:
    disk = nodes.ram_disk("node-0")
    (disk / "replicator.yaml").touch()
    job = ScriptedJob(nodes)
    wait_in(disk, lambda found: not (found / "replicator.yaml").exists())
    assert job.start() == FRESH


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"framework": "tensorflow"}, "Unknown framework 'tensorflow'"),
        ({"job-name": "a/b"}, "job-name 'a/b' can't be a folder"),
    ],
)
def test_a_config_that_can_not_be_served_fails(nodes: StandaloneNodes, config: dict[str, str], message: str) -> None:
    job = ScriptedJob(nodes, **config)
    job.disks = [nodes.ram_disk("node-0"), nodes.ram_disk("node-1")]
    job.write_config(1, job.disks[1])
    assert message in text_of(job.disks[1] / "replicator.failed")


def test_steps_as_the_backup_interval_fail_at_the_first_save(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **{"backup-interval-minutes": None, "backup-interval-steps": 1})
    assert job.start() == FRESH
    job.save(5, ["a0", "a1"])
    failed = job.disks[0] / "replicator.failed"
    assert "backup-interval-minutes" in text_of(failed)


def test_a_save_equal_to_the_one_before_is_reported(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    job.save(9, ["a0", "a1"])
    job.saved_everywhere(9)
    for disk in job.disks:
        assert "training is not making progress" in (disk / "replicator.errors").read_text()
        assert len(list(disk.glob("*.data"))) == 2


def test_a_restored_marker_renamed_to_its_step_is_not_taken_for_a_save(nodes: StandaloneNodes) -> None:
    job = ScriptedJob(nodes, **HOUR)
    job.start()
    job.save(5, ["a0", "a1"])
    job.start()
    for rank, disk in enumerate(job.disks):
        (disk / STEP_5[rank]).rename(disk / "5")
    job.save(9, ["b0", "b1"])
    job.saved_everywhere(9)
    assert all((disk / "5").is_symlink() for disk in job.disks)


def test_a_flat_bucket_is_refused(storage_url: str, tmp_path: Path) -> None:
    create_bucket(storage_url, "flat-bucket", hierarchical=False)
    with StandaloneNodes(tmp_path, storage_url, "flat-bucket", 1) as nodes:
        disk = nodes.ram_disk("node-0")
        job = ScriptedJob(nodes)
        job.disks = [disk]
        job.write_config(0, disk)
        text = text_of(disk / "replicator.failed")
        assert "NOT HNS-enabled" in text
        assert "atomic-rename-test" in JobFolder(storage_url, "flat-bucket", "run").list("")[1]


def test_a_failed_upload_is_reported_and_leaves_the_backup_incomplete(
    nodes: StandaloneNodes, bucket: JobBackups
) -> None:
    fault = {"match": r"POST /upload/.*\.data\.tmp", "status": 403, "times": None}
    requests.post(f"{bucket.url}/_sandbox/faults", json=fault, timeout=10)
    try:
        job = ScriptedJob(nodes)
        job.start()
        job.save(5, ["a0", "a1"])
        for disk in job.disks:
            wait_in(disk, lambda found: "Failed: backup for step 5" in (found / "replicator.errors").read_text())
        (backup,) = bucket.backups()
        metas, folders = bucket.listing(backup)
        assert len(metas) == 2
        assert all(name.endswith(".data.tmp") for name in folders)
    finally:
        requests.delete(f"{bucket.url}/_sandbox/faults", timeout=10)


def test_no_backup_is_asked_for_while_one_is_still_uploading(nodes: StandaloneNodes, bucket: JobBackups) -> None:
    with slow_uploads(bucket, 1500):
        job = ScriptedJob(nodes)
        job.start()
        job.save(5, ["a0", "a1"])
        job.save(9, ["b0", "b1"])
        errors = job.disks[0] / "replicator.errors"
        skipped = "Backup should be requested for step 9, but skipping it because some Nodes"
        wait_in(errors.parent, lambda found: skipped in (found / errors.name).read_text())
        assert {5, 9} <= steps(job.disks[0]), "the step that is being uploaded must stay"
    (backup,) = bucket.backups()
    bucket.wait_for(lambda: complete(bucket.listing(backup), 2, 2))


def test_the_driver_fails_when_its_replicator_has_been_restarted_ten_times(bucket: JobBackups, tmp_path: Path) -> None:
    with StandaloneNodes(tmp_path / "one", bucket.url, bucket.name, 1) as nodes:
        disk = nodes.ram_disk("node-0")
        for _ in range(11):
            (disk / "replicator.yaml").touch()
            wait_in(disk, lambda found: not (found / "replicator.yaml").exists())
        assert nodes.wait_for_driver("node-0") == 1
        assert "in-place restarts so far: 10" in nodes.log("node-0").read_text()


def test_nothing_is_left_when_the_nodes_stop(bucket: JobBackups, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    with StandaloneNodes(directory, bucket.url, bucket.name, 2) as nodes:
        ScriptedJob(nodes).start()
        running = [process for process in psutil.process_iter(["cmdline"]) if belongs(process, directory)]
        assert len(running) == 3, "two replicators and a coordinator"
        assert all(process.memory_info().rss < 60e6 for process in running)
    psutil.wait_procs(running, timeout=5)
    assert not [process for process in psutil.process_iter(["cmdline"]) if belongs(process, directory)]


@contextlib.contextmanager
def slow_uploads(bucket: JobBackups, milliseconds: int) -> Iterator[None]:
    """Uploads of backups' data take so long each."""
    fault = {"match": r"POST /upload/.*\.data\.tmp", "delay_ms": milliseconds, "times": None}
    requests.post(f"{bucket.url}/_sandbox/faults", json=fault, timeout=10)
    try:
        yield
    finally:
        requests.delete(f"{bucket.url}/_sandbox/faults", timeout=10)


def belongs(process: psutil.Process, directory: Path) -> bool:
    return any(str(directory) in word for word in process.info["cmdline"] or ())


def complete(listing: tuple[list[str], list[str]], metas: int, data: int) -> tuple[list[str], list[str]] | None:
    found = [name for name in listing[0] if name.endswith(".meta")]
    whole = [name for name in listing[1] if re.fullmatch(r"D[0-9a-f]{64}\.data", name)]
    return (found, whole) if (len(found), len(whole)) == (metas, data) else None
