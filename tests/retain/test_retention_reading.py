"""What a reading costs, and that what is remembered never protects."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from tests.retain.retention_bucket import Bucket, digest_of

from everstep.checkpoints.layout import RunFolder
from everstep.retain import deciding, reading, remembered
from everstep.retain.bucket_rules import BucketRules
from everstep.retain.inventory import Inventory
from everstep.retain.plan import RetentionPlan
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
FOLDER = RunFolder("bucket", "run")


def many(count: int = 100) -> Bucket:
    bucket = Bucket()
    bucket.run_record("run")
    for hours in range(count):
        bucket.backup("run", f"{NOW - timedelta(hours=3 * hours + 2):%Y-%m-%d_%H-%M}", 1000 - hours)
    return bucket


def read(bucket: Bucket, *, remember: bool = True) -> tuple[Inventory, dict[str, int]]:
    bucket.asked.clear()
    found = bucket.carry_out(reading.read(FOLDER, now=NOW))
    asked = dict(bucket.asked)
    if remember:
        bucket.put(remembered.object_name(FOLDER), json.dumps(remembered.document(found, None, NOW)))
    return found, asked


def decided(found: Inventory) -> RetentionPlan:
    return deciding.make(found, Policy({"daily": 3}), now=NOW, rules=BucketRules(True), force="run")


def test_a_first_reading_lists_each_backup_once_and_reads_no_meta() -> None:
    _, asked = read(many(100))
    # The folder, each backup, and a data folder as a sample.
    assert asked == {"ListRequest": 1 + 100, "ReadRequest": 4, "SizeRequest": 1}


def test_a_second_reading_decides_the_same_by_a_handful_of_requests() -> None:
    bucket = many(100)
    first, _ = read(bucket)
    second, asked = read(bucket)
    # The folder, and the two newest that are complete.
    assert asked == {"ListRequest": 1 + 2, "ReadRequest": 4}
    assert decided(first).units == decided(second).units


def test_what_is_protected_is_judged_anew_however_it_is_remembered() -> None:
    bucket = Bucket()
    bucket.run_record("run")
    for day in range(1, 9):
        bucket.backup("run", f"2026-02-{day:02}_00-00", day)
    read(bucket)
    for day in (7, 8):
        for name in [name for name in bucket.objects if f"2026-02-{day:02}" in name and name.endswith(".meta")][:1]:
            del bucket.objects[name]
    found, _ = read(bucket, remember=False)
    fresh = [each.name for each in found.backups if each.is_fresh]
    assert fresh == ["2026-02-08_00-00", "2026-02-07_00-00", "2026-02-06_00-00", "2026-02-05_00-00"]
    assert {"2026-02-06_00-00", "2026-02-05_00-00"}.isdisjoint(unit.name for unit in decided(found).swept)


def test_a_lie_in_what_is_remembered_does_not_protect() -> None:
    bucket = Bucket()
    bucket.run_record("run")
    for day in range(1, 9):
        bucket.backup("run", f"2026-02-{day:02}_00-00", day, without=[1] if day > 3 else [])
    read(bucket)
    name = remembered.object_name(FOLDER)
    lie = json.loads(bucket.objects[name][0])
    for each in lie["backups"].values():
        each["state"] = "complete"
    bucket.put(name, json.dumps(lie))
    again, _ = read(bucket, remember=False)
    complete = [each.name for each in again.backups if each.is_complete and each.is_fresh]
    assert complete == ["2026-02-03_00-00", "2026-02-02_00-00"]
    assert {"2026-02-03_00-00", "2026-02-02_00-00"}.isdisjoint(unit.name for unit in decided(again).swept)


def test_verdicts_of_another_shape_or_run_or_nonsense_are_forgotten() -> None:
    bucket = many(40)
    read(bucket)
    bucket.run_record("run", nodes=3)
    found, asked = read(bucket)
    assert asked["ListRequest"] >= 41
    assert not any(each.is_complete for each in found.backups)
    for nonsense in ("", "[1]", '{"version": 1, "run": "run"}', '{"version": 9}'):
        bucket.put(remembered.object_name(FOLDER), nonsense)
        assert read(bucket, remember=False)[1]["ListRequest"] >= 41


def test_a_meta_that_holds_more_than_a_digest_is_read() -> None:
    bucket = many(3)
    for name in [name for name in bucket.objects if name.endswith(".meta")]:
        bucket.put(name, bucket.objects[name][0] + b"\n")
    found, asked = read(bucket)
    assert all(each.is_complete for each in found.backups)
    assert asked["ReadRequest"] == 4 + 3 * 2


def test_a_meta_that_names_other_data_is_not_read() -> None:
    bucket = many(3)
    name = next(name for name in bucket.objects if name.endswith("-n1-w0.meta"))
    bucket.put(name, digest_of("nothing has this"))
    found, asked = read(bucket)
    assert sum(each.is_complete for each in found.backups) == 2
    assert asked["ReadRequest"] == 4


def test_a_leftover_without_a_date_ages_from_when_it_was_first_seen() -> None:
    bucket = many(3)
    bucket.put("run/_todelete_x/deep/file")
    found, _ = read(bucket)
    assert found.leftovers[0].since is None
    later = bucket.carry_out(reading.read(FOLDER, now=NOW + timedelta(days=3)))
    assert later.leftovers[0].since == NOW


def test_a_name_a_little_ahead_of_the_clock_hides_none_that_must_be_judged_anew() -> None:
    """The planner's clock is slow: what it finds two minutes ahead is the newest, and not from the future."""
    bucket = Bucket()
    bucket.run_record("run")
    for name, step in (("2026-02-01_00-00", 1), ("2026-03-10_12-02", 2), ("2026-03-12_00-00", 3)):
        bucket.backup("run", name, step)
    ahead = NOW + timedelta(days=3)
    found = bucket.carry_out(reading.read(FOLDER, now=ahead))
    bucket.put(remembered.object_name(FOLDER), json.dumps(remembered.document(found, None, ahead)))
    again = bucket.carry_out(reading.read(FOLDER, now=NOW, keep_complete=1))
    assert [each.name for each in again.backups if each.is_fresh] == ["2026-03-12_00-00", "2026-03-10_12-02"]
    settings = Settings(keep_complete=1)
    plan = deciding.make(again, Policy(keep_last=1), now=NOW, rules=BucketRules(True), settings=settings, force="run")
    assert [unit.name for unit in plan.swept] == ["2026-02-01_00-00"]
