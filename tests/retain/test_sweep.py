"""Applying and undoing plans on a real bucket: exactly the plan, nothing that changed, everything to be had back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.retain.real_bucket import FILES, OTHERS, RUN, RealBucket, digest_of, trash_of

from everstep.clients import bulk_requests as bulk
from everstep.clients.storage_bulk import BulkClient
from everstep.launch.lease import LeaseHeldError, LeaseKeeper
from everstep.retain import plan as plans
from everstep.retain import sweep, sweep_steps
from everstep.retain.plan import RetentionRefused
from everstep.retain.sweep_report import SweepReport, SweepSettings, SweepStopped

pytestmark = pytest.mark.sandbox

OLD = {"2026-03-01_00-00", "2026-03-02_00-00", "2026-03-03_00-00"}
NEW = {"2026-03-04_00-00", "2026-03-05_00-00"}
LATER = datetime.now(UTC) + timedelta(days=2)


@pytest.fixture(params=[True, False], ids=["folders", "flat"])
def bucket(cloud_storage: Any, request: pytest.FixtureRequest) -> Iterator[RealBucket]:
    made = RealBucket(cloud_storage.address, hierarchical=request.param)
    yield made
    made.call("DELETE", "/_sandbox/faults")


@pytest.fixture
def folders(cloud_storage: Any) -> Iterator[RealBucket]:
    made = RealBucket(cloud_storage.address)
    yield made
    made.call("DELETE", "/_sandbox/faults")


@pytest.fixture
def flat(cloud_storage: Any) -> RealBucket:
    return RealBucket(cloud_storage.address, hierarchical=False)


def apply(bucket: RealBucket, plan: plans.RetentionPlan, **more: Any) -> SweepReport:
    settings = SweepSettings(**{"now": lambda: LATER, **more})
    return sweep.apply(bucket.client(), plan, settings=settings, objects_per_second=1e6)


def test_what_is_planned_goes_and_nothing_else(bucket: RealBucket) -> None:
    bucket.history(saves=4)
    before = bucket.names()
    plan = bucket.plan()
    report = apply(bucket, plan)
    assert set(report.swept) == OLD | {"checkpoints/1000", "checkpoints/2000"}
    assert (report.skipped, report.left) == ({}, {})
    assert bucket.dated() == NEW
    after = {name for name in bucket.names() if "/everstep/" not in name and "/.trash-" not in name}
    gone = {
        name
        for name in before
        if name.startswith(tuple(f"{RUN}/{each}/" for each in [*OLD, "checkpoints/1000", "checkpoints/2000"]))
    }
    assert after == {name for name in before if "/everstep/" not in name} - gone
    assert after >= OTHERS
    journal = bucket.read(f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json")
    assert (journal["state"], sorted(journal["report"]["swept"])) == ("applied", sorted(report.swept))
    assert bucket.read(f"{RUN}/everstep/lease.json")["holder"] is None
    again = apply(bucket, plan)
    assert (again.swept, set(again.already)) == ([], set(report.swept))
    assert (again.gone, again.has_swept) == (sorted(report.swept), True), "who died before telling still tells"


def test_what_was_swept_is_had_back_whole_and_nothing_is_written_over(folders: RealBucket) -> None:
    folders.history(saves=4)
    before = folders.names()
    plan = folders.plan()
    apply(folders, plan)
    folders.put(f"{RUN}/2026-03-02_00-00/{RUN}-s7-n0-w0.meta", "newcomer")
    report = sweep.undo(folders.client(), RUN, plan.hash)
    assert set(report.restored) == (OLD - {"2026-03-02_00-00"}) | {"checkpoints/1000", "checkpoints/2000"}
    assert report.skipped == {"2026-03-02_00-00": "something of that name is there"}
    assert folders.read(f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json")["state"] == "undone"
    folders.delete(f"{RUN}/2026-03-02_00-00/{RUN}-s7-n0-w0.meta")
    folders.call("DELETE", f"/storage/v1/b/{folders.name}/folders/{RUN}%2F2026-03-02_00-00%2F")
    assert sweep.undo(folders.client(), RUN, plan.hash[:19]).restored == ["2026-03-02_00-00"]
    assert {name for name in folders.names() if "/everstep/retention" not in name and "lease" not in name} == before
    assert not any(".trash-" in name for name in folders.folders())
    assert sweep.undo(folders.client(), RUN, plan.hash).restored == []
    with pytest.raises(RetentionRefused, match="applied and undone"):
        apply(folders, plan)
    with pytest.raises(RetentionRefused, match="at least 12 digits"):
        sweep.undo(folders.client(), RUN, "sha256:")


def test_what_a_run_must_not_restore_does_not_come_back(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    apply(folders, plan)
    folders.run_record(bound_step=200, quarantined=["2026-03-01_00-00"])
    report = sweep.undo(folders.client(), RUN, plan.hash)
    assert report.restored == ["2026-03-02_00-00"]
    assert report.skipped["2026-03-01_00-00"] == "quarantined"
    assert "above the run's bound 200" in report.skipped["2026-03-03_00-00"]


def test_what_is_swept_on_a_flat_bucket_cannot_be_had_back_and_says_so(flat: RealBucket) -> None:
    flat.history()
    plan = flat.plan()
    apply(flat, plan)
    with pytest.raises(RetentionRefused, match="has no folders"):
        sweep.undo(flat.client(), RUN, plan.hash)


def test_what_changed_since_the_plan_is_skipped(bucket: RealBucket) -> None:
    bucket.history()
    plan = bucket.plan()
    bucket.put(f"{RUN}/2026-03-01_00-00/{RUN}-s100-n0-w0.meta", digest_of("2026-03-01_00-00", 0))  # a new generation
    bucket.put(f"{RUN}/2026-03-02_00-00/late.tmp")
    for name in bucket.names(f"{RUN}/2026-03-03"):
        bucket.delete(name)
    report = apply(bucket, plan)
    assert report.swept == []
    changed = "changed since the plan was made"
    assert {report.skipped[name] for name in ("2026-03-01_00-00", "2026-03-02_00-00")} == {changed}
    assert "2026-03-03_00-00" in report.skipped
    assert bucket.torn() == []
    assert len(bucket.names(f"{RUN}/2026-03-01_00-00/")) == 2 + 2 * len(FILES)


def test_what_is_forced_or_pinned_since_the_plan_stays(bucket: RealBucket) -> None:
    bucket.history()
    plan = bucket.plan()
    bucket.put(f"{RUN}/restore.version", "2026-03-01_00-00\n")
    pins = {"names": {"2026-03-02_00-00": {"reason": "paper"}, "2026-03-03_00-00": {"until": "2026-01-01T00:00Z"}}}
    bucket.put(f"{RUN}/everstep/pins.json", json.dumps(pins))
    report = apply(bucket, plan)
    assert report.swept == ["2026-03-03_00-00"]
    assert report.skipped == {"2026-03-01_00-00": "named by restore.version", "2026-03-02_00-00": "pinned"}
    assert bucket.dated() == NEW | {"2026-03-01_00-00", "2026-03-02_00-00"}


def test_what_is_forced_while_it_is_swept_is_put_back(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()

    def force(line: str) -> None:
        if line.startswith("1 of 3") and f"{RUN}/restore.version" not in folders.names():
            folders.put(f"{RUN}/restore.version", next(iter(trashed())))

    def trashed() -> set[str]:
        return {name.split("/")[2] for name in folders.names(f"{RUN}/.trash-")}

    report = apply(folders, plan, together=1, told=force)
    [put_back] = report.put_back
    assert report.skipped == {put_back: "named by restore.version"}
    assert len(folders.names(f"{RUN}/{put_back}/")) == 2 + 2 * len(FILES)
    assert len(report.swept) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda bucket: bucket.delete(f"{RUN}/2026-03-05_00-00/{RUN}-s500-n1-w0.meta"), "not as complete"),
        (lambda bucket: bucket.run_record(lineage="second", bound_step=300), "second"),
        (
            lambda bucket: bucket.run_record(quarantined=["2026-03-05_00-00"]),
            "quarantined .'2026-03-05_00-00'.; expected",
        ),
        (lambda bucket: bucket.put(f"{RUN}/everstep/run.json", "{"), "may restore is not known"),
        (lambda bucket: bucket.run_record(nodes=4), "nodes 4; expected nodes 2, as planned"),
        (lambda bucket: bucket.put(f"{RUN}/everstep/pins.json", "[]"), "pins"),
        (lambda bucket: bucket.put(f"{RUN}/everstep/retention/sweeps/HASH.json", "[]"), "can't be read"),
    ],
    ids=["torn", "taken back", "quarantined", "unreadable", "resized", "pins", "journal"],
)
def test_a_sweep_does_not_begin_when_what_it_relied_on_changed(bucket: RealBucket, change: Any, expected: str) -> None:
    bucket.history()
    plan = bucket.plan()
    if expected == "can't be read":
        bucket.put(f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json", "[]")
    else:
        change(bucket)
    before = bucket.names()
    with pytest.raises(SweepStopped, match=expected):
        apply(bucket, plan)
    assert bucket.names() - {f"{RUN}/everstep/lease.json"} == before
    assert bucket.read(f"{RUN}/everstep/lease.json")["holder"] is None


def test_a_run_that_was_launched_again_is_swept(bucket: RealBucket) -> None:
    bucket.history()
    plan = bucket.plan()
    bucket.run_record(launch=2, data_parallelism=1)
    assert set(apply(bucket, plan).swept) == OLD


def test_plans_that_reach_beyond_their_run_are_refused_before_anything_is_asked(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    swept = next(unit for unit in plan.swept)
    for wrong in (
        replace(swept, prefix=""),
        replace(swept, prefix=f"{RUN}/"),
        replace(swept, prefix="lm2/2026-03-01_00-00/"),
        replace(swept, name="everstep", prefix=f"{RUN}/everstep/"),
        replace(swept, name="../lm2", prefix=f"{RUN}/../lm2/"),
        replace(swept, kind="durable", name="checkpoints", prefix=f"{RUN}/checkpoints/"),
    ):
        with pytest.raises(RetentionRefused, match="no place of"):
            apply(folders, replace(plan, units=(*plan.kept, wrong)))
    nothing_left = replace(plan.protected_read, newest_complete=())
    with pytest.raises(RetentionRefused, match="no complete checkpoint would be left"):
        apply(folders, replace(plan, protected_read=nothing_left))
    doomed = tuple(replace(unit, decision="sweep") for unit in plan.units)
    with pytest.raises(RetentionRefused, match="relied on and swept"):
        apply(folders, replace(plan, units=doomed))
    with pytest.raises(RetentionRefused, match="a plan of bucket"):
        apply(folders, replace(plan, bucket="another"))
    changed = {**plan.as_dict(), "run": "lm2"}
    with pytest.raises(RetentionRefused, match="was changed"):
        plans.verify(changed)
    assert f"{RUN}/everstep/lease.json" not in folders.names()


def test_trash_is_emptied_once_it_is_old_or_at_once_when_asked(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan(keep_last=4)
    apply(folders, plan)
    [place] = trash_of(folders.names(f"{RUN}/"))
    more = folders.plan(keep_last=3, now=LATER + timedelta(hours=1))
    report = apply(folders, more, now=lambda: LATER + timedelta(hours=47), empty_now=True)
    assert trash_of(folders.names(f"{RUN}/")) == {place}
    assert [name.partition("-")[0] for name in report.emptied] == [".trash"]
    report = apply(folders, more, now=lambda: LATER + timedelta(hours=49))
    assert report.emptied == [place]
    assert not any(".trash" in name for name in folders.folders() | folders.names())
    assert folders.dated() == {"2026-03-03_00-00", *NEW}
    with pytest.raises(RetentionRefused, match="was emptied"):
        sweep.undo(folders.client(), RUN, plan.hash)


def test_what_an_emptying_left_halfway_can_not_be_put_back_and_is_finished(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    apply(folders, plan)
    [place] = trash_of(folders.names(f"{RUN}/"))
    client = BulkClient(folders.client())
    assert client.rename_folder(f"{RUN}/{place}/", f"{RUN}/{place}.emptying/") is bulk.Outcome.DONE
    folders.delete(next(name for name in folders.names(f"{RUN}/{place}.emptying/") if name.endswith("d/a")))
    with pytest.raises(RetentionRefused, match="no trash"):
        sweep.undo(folders.client(), RUN, plan.hash)
    assert apply(folders, plan).emptied == [place]
    assert not any(".trash" in name for name in folders.folders() | folders.names())


def test_without_the_services_own_deletion_trash_goes_object_by_object(
    folders: RealBucket,
) -> None:
    folders.history()
    folders.call("POST", "/_sandbox/faults", {"match": "deleteRecursive", "status": 403, "times": None})
    report = apply(folders, folders.plan(), empty_now=True)
    assert report.objects_deleted == 3 * (2 + 2 * len(FILES))
    assert len(report.emptied) == 1
    assert not any(".trash" in name for name in folders.folders() | folders.names())
    assert folders.dated() == NEW


def test_objects_on_hold_stay_and_are_told_of(flat: RealBucket) -> None:
    flat.history()
    data = f"{RUN}/2026-03-01_00-00/{digest_of('2026-03-01_00-00', 0)}.data/d/a"
    meta = f"{RUN}/2026-03-02_00-00/{RUN}-s200-n1-w0.meta"
    flat.hold(data)
    flat.hold(meta)
    plan = flat.plan()
    held = plan.named("2026-03-02_00-00")
    assert held is not None and held.reasons == ("on hold in the bucket: 1 of the objects directly in it",)
    # As if the hold had come after the last look.
    plan = replace(plan, units=tuple(replace(each, decision="sweep") if each is held else each for each in plan.units))
    report = apply(flat, plan)
    assert set(report.left) == {data, meta}
    assert flat.names(f"{RUN}/2026-03-01") == {data}
    # A backup whose metas can't go keeps all of its data.
    assert len(flat.names(f"{RUN}/2026-03-02")) == 1 + 2 * len(FILES)
    assert report.swept == ["2026-03-03_00-00"]
    assert flat.torn() == []
    for name in (data, meta):
        flat.hold(name, held=False)
    again = apply(flat, plan)
    assert (set(again.gone), again.left, flat.dated()) == (OLD, {}, NEW)
    assert flat.read(f"{RUN}/everstep/retention/sweeps/{plan.hash[7:19]}.json")["state"] == "applied"


def test_an_upload_that_goes_on_while_a_flat_backup_is_swept_is_not_torn(flat: RealBucket) -> None:
    flat.history()
    plan = flat.plan()
    uploads = iter([True])

    def upload(requests: Any) -> None:
        deletes = [each for each in requests if isinstance(each, bulk.DeleteObjects)]
        if deletes and deletes[0].objects[0].name.endswith(".meta") and next(uploads, False):
            name = deletes[0].objects[0].name.split("/")[1]
            flat.put(f"{RUN}/{name}/{RUN}-s999-n0-w0.meta", digest_of(name, 0))

    steps = sweep_steps.sweep(plan, SweepSettings(now=lambda: LATER))
    report = BulkClient(flat.client()).run(steps, before=upload)
    [(name, why)] = report.skipped.items()
    assert "written while it was swept" in why
    assert len([each for each in flat.names(f"{RUN}/{name}/") if "/d/a" in each]) == 2
    assert flat.torn() == []


def test_leftovers_of_crashes_go_by_age(bucket: RealBucket) -> None:
    bucket.history()
    bucket.put(f"{RUN}/checkpoints/700.orbax-checkpoint-tmp/default/d/a")
    bucket.put(f"{RUN}/copy.tmp/part")
    bucket.put(f"{RUN}/_todelete_5/part")
    bucket.put(f"{RUN}/notes/readme")
    bucket.plan()  # where nothing tells its age, it counts from the first look
    plan = bucket.plan(now=LATER + timedelta(days=3))
    report = apply(bucket, plan)
    leftovers = {"checkpoints/700.orbax-checkpoint-tmp", "copy.tmp", "_todelete_5"}
    assert leftovers <= set(report.swept)
    assert {name.split("/")[1] for name in bucket.names(f"{RUN}/")} - NEW <= {
        "everstep",
        "notes",
        *trash_of(bucket.names(f"{RUN}/")),
    }


def test_lost_answers_change_nothing(bucket: RealBucket) -> None:
    bucket.history(saves=3)
    plan = bucket.plan()
    for match in ("renameTo", "POST .*/folders", "DELETE|batch", "upload", "GET .*/o[?]", "operations", "deleteRec"):
        bucket.call("POST", "/_sandbox/faults", {"match": match, "status": 503, "after": True, "times": 1})
    report = apply(bucket, plan, empty_now=True)
    assert set(report.swept) | set(report.already) == OLD | {"checkpoints/1000"}
    assert (bucket.dated(), report.left, bucket.torn()) == (NEW, {}, [])
    assert not any(".trash" in name for name in bucket.names())


def test_refusals_of_parts_of_a_batch_are_tried_again_and_only_those(flat: RealBucket) -> None:
    flat.history()
    before = flat.call("GET", "/_sandbox/requests").get("DELETE object", 0)
    flat.call("POST", "/_sandbox/faults", {"match": "PART DELETE", "status": 429, "retry_after": 0, "times": 5})
    flat.call("POST", "/_sandbox/faults", {"match": "PART DELETE.*manifest", "status": 503, "times": 2})
    flat.call("POST", "/_sandbox/faults", {"match": "PART DELETE.*Fa[?]", "status": 503, "times": 1, "after": True})
    report = apply(flat, flat.plan())
    assert (len(report.swept), report.left) == (3, {})
    assert flat.dated() == NEW
    # Each object once, and one more try for the answer that was lost.
    assert flat.call("GET", "/_sandbox/requests")["DELETE object"] - before == 3 * (2 + 2 * len(FILES)) + 1


def test_a_held_lease_refuses_and_beside_a_training_a_sweep_stops_with_it(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    client = folders.client()
    launcher = LeaseKeeper(client, None, RUN, "somebody")
    lease = launcher.acquire("launch")
    for beside in (False, True):  # a launch that goes on is never swept beside
        with pytest.raises(LeaseHeldError, match=r"held by somebody.*no sweep while somebody else launches"):
            sweep.apply(client, plan, beside_training=beside)
    from everstep.launch.lease import JobSetReference

    lease = launcher.bind(lease, JobSetReference("default", RUN, "uid"))
    with pytest.raises(LeaseHeldError, match="beside-training"):
        sweep.apply(client, plan)

    def taken_back(line: str) -> None:
        if line.startswith("1 of 3"):
            launcher.acquire("resume")

    settings = SweepSettings(now=lambda: LATER, together=1, told=taken_back)
    with pytest.raises(SweepStopped, match="taken over by somebody else"):
        sweep.apply(client, plan, settings=settings, beside_training=True)
    assert len(folders.dated()) == 4
    report = sweep.apply(client, plan, settings=SweepSettings(now=lambda: LATER), beside_training=True)
    assert (len(report.swept), len(report.already), folders.dated()) == (2, 1, NEW)
    held = launcher.read()
    assert held is not None and held.holder == "somebody"
    assert folders.read(f"{RUN}/everstep/retention/lease.json")["holder"] is None


def test_of_two_sweepers_one_goes_on_and_the_other_ends(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    client = folders.client()
    with sweep.HeldRun(client, None, RUN, "one"), pytest.raises(LeaseHeldError, match="held by one"):
        sweep.apply(client, plan, holder="other")
    # A second start under the same name, as after a crash, takes over; the first one notices.
    second: list[SweepReport] = []

    def start_again(line: str) -> None:
        if line.startswith("1 of 3"):
            again = threading.Thread(
                target=lambda: second.append(
                    sweep.apply(folders.client(), plan, holder="one", settings=SweepSettings(now=lambda: LATER))
                )
            )
            again.start()
            again.join()

    settings = SweepSettings(now=lambda: LATER, together=1, told=start_again)
    with pytest.raises(SweepStopped, match=r"taken over|written by somebody else"):
        sweep.apply(client, plan, holder="one", settings=settings)
    assert len(second[0].swept) == 2
    assert len(second[0].already) == 1
    assert (folders.dated(), folders.torn()) == (NEW, [])


def test_an_undo_and_a_sweep_never_run_together(folders: RealBucket) -> None:
    folders.history()
    plan = folders.plan()
    client = folders.client()
    folders.put(f"{RUN}/.trash-20260101T000000Z-{plan.hash[7:19]}/2026-02-01_00-00/earlier")
    with sweep.HeldRun(client, None, RUN, "one"), pytest.raises(LeaseHeldError, match="held by one"):
        sweep.undo(client, RUN, plan.hash, holder="other")

    # Undone in the middle of a sweep that lost its run: the sweep does not take again what came back.
    def undo(line: str) -> None:
        if line.startswith("2 of 3"):
            sweep.undo(client, RUN, plan.hash, holder="one")

    settings = SweepSettings(now=lambda: LATER, together=1, told=undo)
    with pytest.raises(SweepStopped):
        sweep.apply(client, plan, holder="one", settings=settings)
    assert folders.dated() == OLD | NEW | {"2026-02-01_00-00"}
    with pytest.raises(RetentionRefused, match="undone"):
        sweep.apply(client, plan, holder="one")
