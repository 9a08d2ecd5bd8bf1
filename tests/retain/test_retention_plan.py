"""What a plan protects, whatever the policy says; what it refuses; and that a changed one is found out."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.checkpoints.written_metadata import metadata_of
from tests.retain.retention_bucket import Bucket, digest_of

from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.layout import RunFolder
from everstep.retain import deciding, reading, report
from everstep.retain.bucket_rules import BucketRules
from everstep.retain.bucket_rules import read as read_rules
from everstep.retain.place import run_folder
from everstep.retain.plan import RetentionPlan, RetentionRefused, verify
from everstep.retain.policy import Best, Policy
from everstep.retain.protections import Settings

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
FOLDER = RunFolder("bucket", "run")
RULES = BucketRules(hierarchical=True, soft_delete=timedelta(days=7))
ONE = Settings(keep_complete=1)
OLD = NOW - timedelta(days=300)


def days(bucket: Bucket, *numbers: int, nodes: int = 2) -> None:
    for day in numbers:
        bucket.backup("run", f"2026-03-{day:02}_00-00", day * 10, nodes=nodes)


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    bucket.run_record("run")
    return bucket


def planned(
    bucket: Bucket,
    policy: Policy | None = None,
    settings: Settings = ONE,
    *,
    shape: Shape | None = None,
    **options: Any,
) -> RetentionPlan:
    found = bucket.carry_out(reading.read(FOLDER, now=NOW, shape=shape, keep_complete=settings.keep_complete))
    return deciding.make(found, policy or Policy(keep_last=1), now=NOW, rules=RULES, settings=settings, **options)


def swept(plan: RetentionPlan) -> list[str]:
    return [unit.name for unit in plan.swept]


def test_old_complete_backups_go_and_the_newest_stay(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3, 4, 5)
    assert swept(planned(bucket, settings=Settings())) == ["2026-03-03_00-00", "2026-03-02_00-00", "2026-03-01_00-00"]


def test_the_recipe_of_the_seed_keeps_the_complete_backup_before_a_half_uploaded_one(bucket: Bucket) -> None:
    """Field report F8: the half-uploaded newest backup pushed out the complete one of its hour."""
    recipe = Policy({"hourly": 24, "daily": 7, "weekly": 5, "monthly": "always", "yearly": "always"}, keep_last=1)
    bucket.backup("run", "2026-03-10_11-05", 100)
    bucket.backup("run", "2026-03-10_11-35", 200, without=[1])
    for half_hours in range(2, 200):
        time = datetime(2026, 3, 10, 11, 35, tzinfo=UTC) - timedelta(minutes=30 * half_hours)
        bucket.backup("run", f"{time:%Y-%m-%d_%H-%M}", 100 - half_hours // 3)
    plan = planned(bucket, recipe)
    assert {"2026-03-10_11-35", "2026-03-10_11-05"}.isdisjoint(swept(plan))
    assert "protected: among the 1 newest complete backups" in plan.named("2026-03-10_11-05").reasons  # type: ignore[union-attr]
    assert plan.named("2026-03-10_11-35").state == "in flight"  # type: ignore[union-attr]
    assert "2026-03-10_10-05" in swept(plan)


def test_an_old_incomplete_backup_goes_only_when_a_newer_one_is_complete(bucket: Bucket) -> None:
    bucket.backup("run", "2026-03-01_00-00", 100)
    bucket.backup("run", "2026-03-02_00-00", 200, without=[0])
    bucket.backup("run", "2026-03-03_00-00", 300, without=[0])
    assert swept(planned(bucket)) == []
    bucket.backup("run", "2026-03-04_00-00", 400)
    assert swept(planned(bucket, Policy(keep_last=2))) == ["2026-03-03_00-00", "2026-03-02_00-00"]


def test_an_empty_folder_goes_by_age_but_not_as_the_newest(bucket: Bucket) -> None:
    days(bucket, 5)
    bucket.folders |= {"run/2026-03-01_00-00/", "run/2026-03-08_00-00/"}
    assert swept(planned(bucket)) == ["2026-03-01_00-00"]


def test_what_restore_version_names_stays_and_so_do_pins(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3, 4, 5)
    bucket.put("run/restore.version", "2026-03-01_00-00\n")
    pins = {
        "2026-03-02_00-00": {"reason": "paper", "by": "ann", "until": None},
        "2026-03-03_00-00": {"until": "2026-01-01T00:00:00+00:00"},
    }
    bucket.put("run/everstep/pins.json", json.dumps({"names": pins}))
    plan = planned(bucket)
    assert swept(plan) == ["2026-03-04_00-00", "2026-03-03_00-00"]
    assert plan.named("2026-03-01_00-00").reasons == ("named by restore.version",)  # type: ignore[union-attr]
    assert plan.named("2026-03-02_00-00").reasons == ("pinned by ann: paper",)  # type: ignore[union-attr]
    assert plan.protected_read.forced_restore == "2026-03-01_00-00"
    assert plan.protected_read.forced_generation == bucket.objects["run/restore.version"][1]


def test_what_the_policy_pins_stays_also_when_it_is_not_complete(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3, 4)
    bucket.backup("run", "2026-02-01_00-00", 7, without=[0])
    plan = planned(bucket, Policy({}, keep_last=1, pins=("2026-02-01_00-00", "2026-03-01_00-00", "checkpoints/9")))
    assert {"2026-02-01_00-00", "2026-03-01_00-00"} <= {unit.name for unit in plan.kept}
    assert plan.named("2026-02-01_00-00").reasons == ("pinned by the policy",)  # type: ignore[union-attr]
    assert "checkpoints/9 is pinned, but is not there." in plan.warnings


def test_pins_that_cant_be_read_stop_everything(bucket: Bucket) -> None:
    bucket.put("run/everstep/pins.json", "{")
    with pytest.raises(RetentionRefused, match=r"pins.json.*everstep retain pin"):
        planned(bucket)


def test_a_backup_above_the_bound_stays_and_so_does_the_newest_one_of_the_lineage(bucket: Bucket) -> None:
    bucket.run_record("run", bound_step=25, lineage="b", quarantined=["2026-03-02_00-00"])
    days(bucket, 1, 2, 3, 4)
    plan = planned(bucket)
    assert swept(plan) == ["2026-03-03_00-00"]
    assert plan.named("2026-03-01_00-00").reasons == (  # type: ignore[union-attr]
        "protected: among the 1 newest complete backups of the live lineage",
    )


def test_a_backup_from_the_future_is_left_alone_and_moves_no_window(bucket: Bucket) -> None:
    days(bucket, 1, 2, 8, 9)
    bucket.backup("run", "2099-01-01_00-00", 900)
    plan = planned(bucket, Policy({"daily": 2}, keep_last=1))
    assert swept(plan) == ["2026-03-02_00-00", "2026-03-01_00-00"]


def test_what_is_no_backup_of_this_run_is_left_alone(bucket: Bucket) -> None:
    days(bucket, 1, 2)
    bucket.put("run/2026-99-99_00-00/notes.txt")
    bucket.put("run/2026-01-01_00-00/other-s5-n0-w0.meta", digest_of("x"))
    bucket.put("run/somebodys-folder/file")
    plan = planned(bucket)
    assert swept(plan) == ["2026-03-01_00-00"]
    assert any("somebodys-folder" in warning for warning in plan.warnings)


def test_a_folder_of_another_job_is_refused(bucket: Bucket) -> None:
    bucket.backup("other", "2026-03-01_00-00", 5)
    for name in list(bucket.objects):
        bucket.objects[name.replace("other/", "run/")] = bucket.objects[name]
    with pytest.raises(RetentionRefused, match="every backup in it is foreign"):
        planned(bucket)


def test_without_a_shape_nothing_is_judged() -> None:
    bucket = Bucket()
    days(bucket, 1, 2)
    with pytest.raises(RetentionRefused, match=r"run.json.*no such object.*--shape"):
        planned(bucket)
    assert swept(planned(bucket, shape=Shape(2))) == ["2026-03-01_00-00"]


def test_backups_of_before_a_resize_are_kept_by_the_policy_among_themselves(bucket: Bucket) -> None:
    bucket.run_record("run", nodes=4)
    days(bucket, 1, 2, 3, nodes=2)
    days(bucket, 4, 5, 6, nodes=4)
    plan = planned(bucket, Policy({"monthly": "always"}, keep_last=1))
    assert swept(plan) == ["2026-03-05_00-00", "2026-03-04_00-00", "2026-03-02_00-00", "2026-03-01_00-00"]
    assert plan.named("2026-03-03_00-00").state == "incomplete"  # type: ignore[union-attr]
    assert any("2 nodes" in warning for warning in plan.warnings)


def test_a_wrong_shape_sweeps_nothing(bucket: Bucket) -> None:
    bucket.run_record("run", nodes=8)
    for day in (1, 2, 3):
        bucket.backup("run", f"2026-03-{day:02}_00-00", day, nodes=3, without=[1])
    assert swept(planned(bucket)) == []


def test_a_plan_that_removes_a_large_share_has_to_be_forced_by_name(bucket: Bucket) -> None:
    days(bucket, *range(1, 10))
    settings = Settings(keep_complete=1, max_share=0.5)
    with pytest.raises(RetentionRefused, match=r"8 of 9 complete.*--force run"):
        planned(bucket, settings=settings)
    with pytest.raises(RetentionRefused, match="forced for run 'other'"):
        planned(bucket, settings=settings, force="other")
    plan = planned(bucket, settings=settings, force="run")
    assert (len(plan.swept), plan.forced) == (8, True)


def test_a_plan_never_leaves_a_run_without_a_complete_backup(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.retain import protections

    monkeypatch.setattr(protections, "of_backups", lambda found, *_: {each.name: () for each in found.backups})
    monkeypatch.setattr(deciding, "reasons_to_keep", lambda *_, **__: {})
    days(bucket, 1, 2)
    with pytest.raises(RetentionRefused, match="every complete backup"):
        planned(bucket, force="run")


@pytest.mark.parametrize("name", ["", "/", "a/b", "run*", " run", ".", ".."])
def test_only_one_run_at_exact_depth_is_looked_at(name: str) -> None:
    with pytest.raises(RetentionRefused, match="one run at a time"):
        run_folder("bucket", name)


def orbax(bucket: Bucket, step: int, *, marker: bool = True, loss: float | None = None) -> None:
    prefix, created = f"run/checkpoints/{step}/", OLD + timedelta(hours=step)
    metadata = {"item_handlers": {"state": "x"}, "metrics": {} if loss is None else {"loss": loss}}
    bucket.put(f"{prefix}_CHECKPOINT_METADATA", json.dumps(metadata), created)
    bucket.put(f"{prefix}state/manifest.ocdbt", b"m", created)
    bucket.put(f"{prefix}state/ocdbt.process_0/manifest.ocdbt", b"m", created)
    if marker:
        bucket.put(f"{prefix}commit_success.txt", b"ok", created)


def test_plain_orbax_saves_are_judged_by_their_marker_and_never_swept_for_lacking_it(bucket: Bucket) -> None:
    for step in (10, 20, 30, 40):
        orbax(bucket, step, marker=step != 20)
    plan = planned(bucket)
    assert swept(plan) == ["checkpoints/30", "checkpoints/10"]
    assert next((unit.kind, unit.prefix) for unit in plan.swept) == ("durable", "run/checkpoints/30/")
    assert plan.named("checkpoints/20").reasons == ("not judged: unproven (no commit_success.txt)",)  # type: ignore[union-attr]


def test_a_newest_save_that_was_copied_in_part_does_not_protect(bucket: Bucket) -> None:
    orbax(bucket, 10)
    orbax(bucket, 20)
    orbax(bucket, 30)
    del bucket.objects["run/checkpoints/30/state/manifest.ocdbt"]
    plan = planned(bucket)
    assert plan.named("checkpoints/30").state == "torn"  # type: ignore[union-attr]
    assert swept(plan) == ["checkpoints/10"]


def test_the_best_by_a_metric_of_the_saves_stays(bucket: Bucket) -> None:
    for step, loss in ((10, 0.5), (20, 0.1), (30, float("nan")), (40, 0.4)):
        orbax(bucket, step, loss=loss)
    policy = Policy(keep_last=1, best=Best("loss"))
    found = bucket.carry_out(reading.read(FOLDER, now=NOW, keep_complete=1, metric="loss"))
    plan = deciding.make(found, policy, now=NOW, rules=RULES, settings=ONE)
    assert swept(plan) == ["checkpoints/30", "checkpoints/10"]


def test_dcp_saves_are_judged_by_their_metadata_and_the_files_it_names(bucket: Bucket) -> None:
    def dcp(step: int, files: tuple[str, ...], named: tuple[str, ...]) -> None:
        prefix, created = f"run/checkpoints/{step}/", OLD + timedelta(hours=step)
        for name in files:
            bucket.put(prefix + name, b"data", created)
        body = metadata_of((name, 0, 4) for name in named)
        bucket.put(f"{prefix}.metadata", body, created)

    both = ("__0_0.distcp", "__1_0.distcp")
    dcp(10, both, both)
    dcp(20, both, both)
    dcp(30, both[:1], both)
    bucket.put("run/checkpoints/40/__0_0.distcp", b"data", OLD)
    dcp(50, both, both)
    # A save that died while it wrote over this one: the marker is still the old one's.
    bucket.put("run/checkpoints/50/__1_0.distcp", b"dat", OLD + timedelta(hours=50))
    plan = planned(bucket)
    assert swept(plan) == ["checkpoints/10"]
    assert plan.swept[0].kind == "dcp"
    assert plan.named("checkpoints/50").reasons == ("not judged: torn (__1_0.distcp is cut off: 3 of 4 bytes)",)  # type: ignore[union-attr]
    assert plan.named("checkpoints/30").reasons == ("not judged: torn (__1_0.distcp is missing)",)  # type: ignore[union-attr]
    assert plan.named("checkpoints/40").state == "unproven"  # type: ignore[union-attr]


def test_leftovers_go_by_age(bucket: Bucket) -> None:
    days(bucket, 1)
    bucket.put("run/.trash-20260310T110000Z/2026-01-01_00-00/x")
    bucket.put("run/.trash-20260301T110000Z/2026-01-01_00-00/x")
    bucket.put("run/2026-03-01_00-00.tmp/x", b"x", OLD)
    bucket.put("run/_todelete_5/deep/x")
    bucket.put("run/checkpoints/50.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", b"{}", OLD)
    plan = planned(bucket)
    assert sorted(swept(plan)) == [
        ".trash-20260301T110000Z",
        "2026-03-01_00-00.tmp",
        "checkpoints/50.orbax-checkpoint-tmp",
    ]
    assert "age is not known" in plan.named("_todelete_5").reasons[0]  # type: ignore[union-attr]


def test_a_plan_survives_its_file_and_a_changed_file_is_refused(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3)
    orbax(bucket, 10)
    plan = planned(bucket, Policy({"daily": 2}, within=timedelta(hours=3), best=Best("loss")))
    text = plan.to_json()
    again = verify(text)
    assert again.to_json() == text
    assert (again.units, again.totals, again.protected_read) == (plan.units, plan.totals, plan.protected_read)
    for old, new in (("2026-03-01_00-00", "2026-03-02_00-00"), ('"keep"', '"sweep"'), ('"run": "run"', '"run": "b"')):
        assert old in text
        with pytest.raises(RetentionRefused, match="changed"):
            verify(text.replace(old, new, 1))
    for nonsense in ("", "[]", "{}", '{"version": 2}'):
        with pytest.raises(RetentionRefused, match="can't be read"):
            verify(nonsense)


def test_a_fingerprint_changes_with_anything_that_a_listing_shows(bucket: Bucket) -> None:
    days(bucket, 1, 2)

    def fingerprint() -> str:
        return planned(bucket).named("2026-03-01_00-00").fingerprint  # type: ignore[union-attr]

    seen = {fingerprint()}
    meta = next(name for name in bucket.objects if "2026-03-01" in name and name.endswith(".meta"))
    body, _, created = bucket.objects[meta]
    bucket.put(meta, body, created)
    seen.add(fingerprint())
    bucket.put("run/2026-03-01_00-00/new.tmp")
    seen.add(fingerprint())
    data = next(name for name in bucket.objects if "2026-03-01" in name and ".data/" in name)
    del bucket.objects[data]
    seen.add(fingerprint())
    assert len(seen) == 4


def test_a_plan_says_what_it_frees_and_until_when_it_is_billed(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3)
    plan = planned(bucket)
    assert plan.totals.freed_objects == 2 * (2 + 2)
    assert plan.totals.freed_bytes == 2 * (2 * 65 + 2 * 10)
    assert (plan.totals.is_estimate, plan.totals.billed_until) == (True, NOW + timedelta(days=7))
    assert "frees about 300 B in about 8 objects" in report.summary(plan)
    assert "2026-03-17 12:00 UTC" in report.summary(plan)


def test_the_bucket_s_own_rules_are_told() -> None:
    metadata = {
        "name": "b",
        "hierarchicalNamespace": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
        "retentionPolicy": {"retentionPeriod": "86400"},
        "lifecycle": {
            "rule": [
                {"action": {"type": "Delete"}, "condition": {"age": 30}},
                {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["other/"]}},
                {"action": {"type": "SetStorageClass"}, "condition": {"age": 1}},
            ]
        },
    }
    rules = read_rules(metadata, "run")
    assert (rules.hierarchical, rules.soft_delete) == (True, timedelta(days=7))
    assert ["lifecycle" in each for each in rules.warnings] == [True, False]


def test_table_calendar_and_page_say_why(bucket: Bucket) -> None:
    days(bucket, 1, 2, 3)
    bucket.put("run/2026-03-04_00-00/<odd>.txt")
    plan = planned(bucket)
    table = report.table(plan)
    assert "no rule keeps it" in table
    assert "among the newest 1" in table
    assert report.calendar(plan).splitlines()[:4] == [
        "2026-03-04  !",
        "2026-03-03  #",
        "2026-03-02  .",
        "2026-03-01  .",
    ]
    page = report.page(plan)
    assert "&lt;odd&gt;" in page and "<odd>" not in page
    assert plan.hash in page
    assert "would be swept: no rule keeps it" in (report.explain(plan, "2026-03-01_00-00") or "")
