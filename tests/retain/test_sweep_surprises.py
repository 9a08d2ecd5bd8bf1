"""What happens between plan and sweep, or between sweep and undo, that nobody planned for; on a real bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.retain.real_bucket import RUN, RealBucket, trash_of

from everstep.checkpoints.completeness import Shape
from everstep.cli.main import main
from everstep.launch.lease import JobSetReference, LeaseKeeper
from everstep.retain import plan as plans
from everstep.retain import report, sweep
from everstep.retain.plan import RetentionRefused
from everstep.retain.planning import plan_run
from everstep.retain.policy import Policy
from everstep.retain.sweep_report import SweepReport, SweepSettings, SweepStopped

pytestmark = pytest.mark.sandbox

OLD = {"2026-03-01_00-00", "2026-03-02_00-00", "2026-03-03_00-00"}
NEW = {"2026-03-04_00-00", "2026-03-05_00-00"}
LATER = datetime.now(UTC) + timedelta(days=2)


@pytest.fixture
def folders(cloud_storage: Any) -> Iterator[RealBucket]:
    made = RealBucket(cloud_storage.address)
    yield made
    made.call("DELETE", "/_sandbox/faults")


@pytest.fixture(params=[True, False], ids=["folders", "flat"])
def bucket(cloud_storage: Any, request: pytest.FixtureRequest) -> RealBucket:
    return RealBucket(cloud_storage.address, hierarchical=request.param)


def apply(bucket: RealBucket, plan: plans.RetentionPlan, **more: Any) -> SweepReport:
    settings = SweepSettings(**{"now": lambda: LATER, **more})
    return sweep.apply(bucket.client(), plan, settings=settings, objects_per_second=1e6)


def test_what_changed_after_it_was_remembered_goes_by_the_next_plan(bucket: RealBucket) -> None:
    bucket.history(saves=4)
    bucket.plan()
    for name in (f"2026-03-01_00-00/{RUN}-s100-n0-w0.meta", "checkpoints/1000/commit_success.txt"):
        # A hold that was taken away again: nothing is otherwise, but the metageneration.
        bucket.hold(f"{RUN}/{name}")
        bucket.hold(f"{RUN}/{name}", held=False)
    first = apply(bucket, bucket.plan())
    assert set(first.skipped) == {"2026-03-01_00-00", "checkpoints/1000"}
    second = apply(bucket, bucket.plan())
    assert (set(second.swept), second.skipped) == ({"2026-03-01_00-00", "checkpoints/1000"}, {})
    assert bucket.dated() == NEW


def test_a_hold_that_was_taken_away_again_is_seen(bucket: RealBucket) -> None:
    bucket.history(saves=4)
    held = (f"{RUN}/2026-03-01_00-00/{RUN}-s100-n0-w0.meta", f"{RUN}/checkpoints/1000/commit_success.txt")
    for name in held:
        bucket.hold(name)
    kept = {unit.name for unit in bucket.plan().kept}
    assert {"2026-03-01_00-00", "checkpoints/1000"} <= kept
    for name in held:
        bucket.hold(name, held=False)
    assert {"2026-03-01_00-00", "checkpoints/1000"} <= {unit.name for unit in bucket.plan().swept}


def test_a_run_that_was_taken_back_is_planned_by_the_saves_that_it_may_restore(bucket: RealBucket) -> None:
    bucket.history(saves=6)
    bucket.plan()
    bucket.run_record(lineage="second", bound_step=2500)
    plan = bucket.plan()
    assert {"checkpoints/1000", "checkpoints/2000"} <= set(plan.protected_read.newest_complete)
    assert [unit.name for unit in plan.swept if unit.kind == "durable"] == ["checkpoints/4000", "checkpoints/3000"]


def test_a_shape_that_contradicts_the_run_or_its_backups_is_refused(folders: RealBucket) -> None:
    folders.history()
    folders.delete(f"{RUN}/2026-03-05_00-00/{RUN}-s500-n1-w0.meta")
    folders.delete(f"{RUN}/2026-03-04_00-00/{RUN}-s400-n1-w0.meta")

    def planned(shape: Shape) -> plans.RetentionPlan:
        return plan_run(folders.client(), RUN, Policy({}, keep_last=1), now=LATER, shape=shape)

    # Taken for a run of one node, two backups that the run would not restore would push out the one that it would.
    with pytest.raises(RetentionRefused, match=r"1 node; expected 2 nodes, as run\.json says"):
        planned(Shape(1))
    assert "2026-03-03_00-00" not in {unit.name for unit in planned(Shape(2)).swept}
    folders.delete(f"{RUN}/everstep/run.json")
    for _ in ("judged", "remembered"):
        with pytest.raises(RetentionRefused, match="metas of 2 nodes; expected at most those of 1 node, as --shape"):
            planned(Shape(1))
    assert "2026-03-03_00-00" not in {unit.name for unit in planned(Shape(2)).swept}


@pytest.mark.parametrize("record", ["{", "[]", '{"bound_step": "200"}', '{"quarantined": "2026-03-01_00-00"}'])
def test_a_run_record_that_can_t_be_understood_is_never_taken_for_none(folders: RealBucket, record: str) -> None:
    folders.history()
    folders.put(f"{RUN}/everstep/run.json", record)
    with pytest.raises(RetentionRefused, match=r"run\.json.*expected a JSON object"):
        plan_run(folders.client(), RUN, Policy({}), now=LATER, shape=Shape(2))


def test_a_run_that_is_not_there_is_no_empty_run(folders: RealBucket) -> None:
    with pytest.raises(RetentionRefused, match="no such folder"):
        plan_run(folders.client(), RUN, Policy({}), now=LATER, shape=Shape(2))
    for name in ("x" * 12, "../../../../lm2", "c336", "sha256:" + "F" * 64):
        with pytest.raises(RetentionRefused, match="at least 12 digits"):
            sweep.undo(folders.client(), RUN, name)
    with pytest.raises(RetentionRefused, match="no sweep of that plan"):
        sweep.undo(folders.client(), RUN, "c336cce1b556")
    assert folders.names() == set()


def test_a_hash_that_only_begins_like_the_plan_s_undoes_nothing(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    apply(folders, plan)
    wrong = plan.hash[:-1] + ("0" if plan.hash[-1] != "0" else "1")
    with pytest.raises(RetentionRefused, match="no sweep of that plan"):
        sweep.undo(folders.client(), RUN, wrong)
    assert folders.dated() == NEW
    assert set(sweep.undo(folders.client(), RUN, plan.hash[7:19] + "…").restored) == OLD
    assert "undone before" in sweep.undo(folders.client(), RUN, plan.hash).lines()[0]


def test_without_its_journal_an_undo_still_brings_back_nothing_above_the_bound(folders: RealBucket) -> None:
    folders.history(saves=4)
    plan = folders.plan()
    apply(folders, plan)
    folders.delete(f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json")
    folders.run_record(bound_step=200)
    report = sweep.undo(folders.client(), RUN, plan.hash)
    assert set(report.restored) == {"2026-03-01_00-00", "2026-03-02_00-00"}
    assert set(report.skipped) == {"2026-03-03_00-00", "checkpoints/1000", "checkpoints/2000"}


def test_what_was_pinned_and_never_went_was_not_put_back(folders: RealBucket) -> None:
    folders.history(saves=4)
    plan = folders.plan()
    pins = {"names": {"checkpoints/1000": {"reason": "paper"}}}
    folders.put(f"{RUN}/everstep/pins.json", json.dumps(pins))
    report = apply(folders, plan)
    assert (report.put_back, report.skipped) == ([], {"checkpoints/1000": "pinned"})
    assert "checkpoints/2000" in report.swept


def test_what_was_put_back_was_not_freed(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()

    def force(line: str) -> None:
        if line.startswith("3 of 3"):
            folders.put(f"{RUN}/restore.version", "2026-03-01_00-00")

    report = apply(folders, plan, together=1, told=force)
    assert report.put_back == ["2026-03-01_00-00"]
    assert report.swept_bytes == sum(plan.named(name).bytes or 0 for name in report.swept)  # type: ignore[union-attr]


def test_a_trash_that_somebody_restores_from_or_put_something_into_stays(folders: RealBucket) -> None:
    folders.history()
    apply(folders, folders.plan())
    [place] = trash_of(folders.names(f"{RUN}/"))
    folders.put(f"{RUN}/.trash-mine/part")
    folders.plan()  # the age of one without a stamp counts from the first look
    much_later = LATER + timedelta(days=5)
    plan = folders.plan(now=much_later)
    assert {unit.name for unit in plan.swept} == {place, ".trash-mine"}
    folders.put(f"{RUN}/.trash-mine/more")
    folders.put(f"{RUN}/restore.version", f"{place}/2026-03-03_00-00")
    report = apply(folders, plan, now=lambda: much_later)
    assert report.skipped == {
        place: "restore.version names a backup in it",
        ".trash-mine": "changed since the plan was made",
    }
    assert (report.emptied, trash_of(folders.names(f"{RUN}/"))) == ([], {place, ".trash-mine"})
    assert place not in {unit.name for unit in folders.plan(now=much_later).swept}


def test_what_was_emptied_before_a_sweep_was_killed_is_not_told_as_somebody_else_s_doing(folders: RealBucket) -> None:
    folders.history(saves=3)
    plan = folders.plan()
    journal = f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json"

    def interrupt(line: str) -> None:
        if line.startswith("emptying"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(folders, plan, empty_now=True, told=interrupt)
    assert folders.read(journal)["state"] == "applying"
    report = apply(folders, plan)
    assert (set(report.already), report.skipped) == (OLD | {"checkpoints/1000"}, {})
    assert not any(".trash" in name for name in folders.names())


def test_an_identity_that_may_not_rename_is_told_what_it_lacks(
    folders: RealBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.history()
    out = tmp_path / "plan.json"
    out.write_text(folders.plan().to_json())
    before = folders.dated()
    said = "sweeper lacks storage.folders.rename."
    folders.call("POST", "/_sandbox/faults", {"match": "renameTo", "status": 403, "times": None, "message": said})
    assert main(["retain", "apply", str(out), "--endpoint", folders.address]) == 1
    complaint = capsys.readouterr().err
    assert f"rename gs://{folders.name}/{RUN}/2026-03-03_00-00/ to gs://{folders.name}/{RUN}/.trash-" in complaint
    assert said in complaint and "everstep permissions" in complaint
    assert folders.dated() == before
    folders.call("DELETE", "/_sandbox/faults")
    assert main(["retain", "apply", str(out), "--endpoint", folders.address]) == 0
    assert folders.dated() == NEW


def test_a_plan_of_a_bucket_without_folders_says_that_nothing_can_be_had_back(bucket: RealBucket) -> None:
    bucket.history()
    said = report.summary(bucket.plan())
    assert ("can't be had back" in said) is not bucket.hierarchical
    assert ("in the trash first" in said) is bucket.hierarchical


def test_what_is_not_known_of_sizes_is_said(folders: RealBucket) -> None:
    folders.history(saves=4)
    assert "without 2 whose size is not known (--measure counts all)" in report.summary(folders.plan())
    measured = plan_run(folders.client(), RUN, Policy({}, keep_last=2), now=LATER, measure=True)
    assert "frees 1.1 KiB in 32 objects." in report.summary(measured)


def test_an_empty_folder_of_a_bucket_without_folders_goes_too(cloud_storage: Any) -> None:
    flat = RealBucket(cloud_storage.address, hierarchical=False)
    flat.history()
    # What a mount leaves of a folder that was made and never filled.
    flat.put(f"{RUN}/2026-02-01_00-00/", b"")
    plan = flat.plan()
    assert plan.named("2026-02-01_00-00").state == "empty"  # type: ignore[union-attr]
    report = apply(flat, plan)
    assert (set(report.swept), report.skipped) == ({"2026-02-01_00-00", *OLD}, {})
    assert flat.dated() == NEW


@pytest.mark.parametrize("run", ["ünï 模型", "a%2Fb+c&d#e", "2026-01-05_12-00"])
def test_runs_may_be_named_as_they_are(bucket: RealBucket, run: str) -> None:
    bucket.put(f"{run}/everstep/run.json", json.dumps({"nodes": 2, "workers_per_node": 1, "data_parallelism": None}))
    for day in range(1, 5):
        bucket.backup(f"2026-03-0{day}_00-00", day, run=run)
        bucket.backup(f"2026-03-0{day}_00-00", day, run=run + "2")
    before = bucket.names()
    plan = plan_run(bucket.client(), run, Policy({}, keep_last=1), now=LATER)
    swept = sweep.apply(bucket.client(), plan, settings=SweepSettings(now=lambda: LATER), objects_per_second=1e6).swept
    assert set(swept) == {"2026-03-01_00-00", "2026-03-02_00-00"}
    gone = {name for name in before if name.startswith(tuple(f"{run}/{name}/" for name in swept))}
    assert {name for name in bucket.names() if "/everstep/" not in name and "/.trash" not in name} == {
        name for name in before - gone if "/everstep/" not in name
    }
    if bucket.hierarchical:
        assert set(sweep.undo(bucket.client(), run, plan.hash).restored) == set(swept)
        assert before <= bucket.names()


def test_a_sweep_that_has_nothing_to_do_leaves_no_journal(bucket: RealBucket) -> None:
    bucket.history(backups=2)
    plan = bucket.plan()
    assert plan.swept == ()
    assert not apply(bucket, plan).has_swept
    assert not bucket.names(f"{RUN}/everstep/retention/sweeps/")


def test_a_trash_beside_saves_goes_like_any_leftover(bucket: RealBucket) -> None:
    bucket.history(saves=3)
    name = "checkpoints/.trash-20260101T000000Z"
    bucket.put(f"{RUN}/{name}/500/part")
    plan = bucket.plan(keep_last=5)
    assert [unit.name for unit in plan.swept] == [name]
    assert apply(bucket, plan).swept == [name]
    assert not bucket.names(f"{RUN}/checkpoints/.trash")
    if bucket.hierarchical:
        assert sweep.undo(bucket.client(), RUN, plan.hash).restored == [name]


def test_a_trash_is_not_emptied_while_restore_version_names_what_lies_in_it(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    apply(folders, plan)
    [place] = trash_of(folders.names(f"{RUN}/"))
    folders.put(f"{RUN}/restore.version", "2026-03-02_00-00")
    much_later = LATER + timedelta(days=5)
    nightly = folders.plan(now=much_later)
    report = apply(folders, nightly, now=lambda: much_later)
    assert report.emptied == []
    assert report.skipped == {place: "restore.version names 2026-03-02_00-00, which lies in it: undo its sweep"}
    # The sweep that took it puts it back when it is started again, and empties the rest.
    again = apply(folders, plan, now=lambda: much_later)
    assert (again.put_back, again.emptied) == (["2026-03-02_00-00"], [place])
    assert folders.dated() == {"2026-03-02_00-00", *NEW}
    assert folders.torn() == []


def test_a_lease_whose_training_can_t_be_seen_is_left_to_it(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    keeper = LeaseKeeper(folders.client(), None, RUN, "dag", now=lambda: datetime.now(UTC) - timedelta(hours=1))
    keeper.bind(keeper.acquire("launch"), JobSetReference("default", RUN, "uid"))
    bound = keeper.read()
    assert len(apply(folders, plan).swept) == 3
    assert keeper.read() == bound
    assert sweep.undo(folders.client(), RUN, plan.hash).skipped == {}
    assert keeper.read() == bound
    assert folders.read(f"{RUN}/everstep/retention/lease.json")["holder"] is None

    def launched(line: str) -> None:
        if line.startswith("1 of 3"):
            LeaseKeeper(folders.client(), None, RUN, "another").acquire("launch")

    again = folders.plan()
    with pytest.raises(SweepStopped, match="taken over by somebody else"):
        apply(folders, again, together=1, told=launched)
