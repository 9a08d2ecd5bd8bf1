"""What a plan protects, whatever the policy says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from everstep.checkpoints import catalogue as catalogues
from everstep.checkpoints.catalogue import BackupListing, Catalogue, Shape
from everstep.retain import plan as plans
from everstep.retain.policy import Policy

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SHAPE = Shape(nodes=2, workers_per_node=1)
DIGEST = "D" + "a" * 64


def backup(name: str, step: int, *, nodes: int = 2) -> BackupListing:
    metas = {f"run-s{step}-n{node}-w0.meta": DIGEST for node in range(nodes)}
    return BackupListing(name, metas=metas, data=frozenset({f"{DIGEST}.data"}))


def catalogue(*listings: BackupListing) -> Catalogue:
    return catalogues.build("run", listings, SHAPE, now=NOW, grace=timedelta(hours=1))


def decisions(found: Catalogue, policy: Policy, **options: object) -> Mapping[str, bool]:
    plan = plans.make(found, policy, bucket="bucket", now=NOW, **options)  # type: ignore[arg-type]
    return {planned.name: planned.keep for planned in plan.backups}


def test_old_complete_backups_go_and_the_newest_stay() -> None:
    found = catalogue(*(backup(f"2026-03-0{day}_00-00", day * 10) for day in range(1, 6)))
    assert decisions(found, Policy(keep_last=2)) == {
        "2026-03-05_00-00": True,
        "2026-03-04_00-00": True,
        "2026-03-03_00-00": False,
        "2026-03-02_00-00": False,
        "2026-03-01_00-00": False,
    }


def test_an_incomplete_newest_backup_never_pushes_out_a_complete_one() -> None:
    """Field report F8: with one daily slot the half-uploaded newest backup was the one that stayed."""
    found = catalogue(backup("2026-03-10_10-05", 100), backup("2026-03-10_11-55", 200, nodes=1))
    assert decisions(found, Policy({"hourly": 1, "daily": 1}, keep_last=1)) == {
        "2026-03-10_11-55": True,
        "2026-03-10_10-05": True,
    }


def test_an_old_incomplete_backup_goes() -> None:
    found = catalogue(backup("2026-03-01_00-00", 100), backup("2026-03-02_00-00", 200, nodes=1))
    assert decisions(found, Policy(keep_last=1)) == {"2026-03-02_00-00": False, "2026-03-01_00-00": True}


def test_the_target_of_a_forced_restore_stays() -> None:
    found = catalogue(backup("2026-03-01_00-00", 100), backup("2026-03-02_00-00", 200))
    kept = decisions(found, Policy(keep_last=1), forced_restore="2026-03-01_00-00\n")
    assert kept["2026-03-01_00-00"]


def test_a_backup_from_the_future_is_left_alone_and_does_not_count_as_the_newest() -> None:
    found = catalogue(backup("2026-03-01_00-00", 100), backup("2026-12-31_00-00", 200))
    assert decisions(found, Policy(keep_last=1)) == {"2026-12-31_00-00": True, "2026-03-01_00-00": True}


def test_what_is_not_a_backup_of_this_run_is_left_alone() -> None:
    foreign = BackupListing("2026-99-99_00-00", other=frozenset({"notes.txt"}))
    assert decisions(catalogue(backup("2026-03-01_00-00", 1), foreign), Policy(keep_last=1))["2026-99-99_00-00"]


def test_a_run_keeps_a_restorable_backup_or_the_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "reasons_to_keep", lambda *_: {})
    with pytest.raises(plans.RetentionRefused, match="every complete backup"):
        plans.make(catalogue(backup("2026-03-01_00-00", 1)), Policy(), bucket="bucket", now=NOW)


def test_the_hash_names_what_was_decided() -> None:
    found = catalogue(*(backup(f"2026-03-0{day}_00-00", day) for day in range(1, 6)))
    one = plans.make(found, Policy(keep_last=2), bucket="bucket", now=NOW).as_dict()
    same = plans.make(found, Policy(keep_last=2), bucket="bucket", now=NOW).as_dict()
    other = plans.make(found, Policy(keep_last=3), bucket="bucket", now=NOW).as_dict()
    assert one["hash"] == same["hash"] != other["hash"]


def test_the_table_says_why() -> None:
    found = catalogue(backup("2026-03-01_00-00", 100), backup("2026-03-02_00-00", 200))
    table = plans.make(found, Policy(keep_last=1), bucket="bucket", now=NOW).as_table()
    assert "among the newest 1" in table
    assert "no rule keeps it" in table
