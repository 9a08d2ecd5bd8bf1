from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from everstep.checkpoints import catalogue, checksums, last_known_good, names
from everstep.checkpoints.catalogue import BackupListing, BackupState, ListedObject, Shape

A, B = "D" + "a" * 64, "D" + "b" * 64
NOW = datetime(2025, 10, 22, 12, 0, tzinfo=UTC)
GRACE = timedelta(minutes=30)
TWO = Shape(2)


def meta(step: int, node: int, digest: str, *, job: str = "run", checksum: str = "md5") -> ListedObject:
    body = digest.encode()
    return ListedObject(
        names.meta_name(job, step, node),
        size=len(body),
        md5=checksums.md5_base64(body) if checksum == "md5" else None,
        crc32c=checksums.crc32c_base64(body) if checksum == "crc32c" else None,
    )


def listing(name: str, *objects: ListedObject, prefixes: tuple[str, ...] = ()) -> BackupListing:
    return catalogue.read_listing(name, objects, prefixes)


def judge(*listings: BackupListing, shape: Shape = TWO) -> catalogue.Catalogue:
    return catalogue.build("run", listings, shape, now=NOW, grace=GRACE)


def complete(name: str, step: int) -> BackupListing:
    return listing(name, meta(step, 0, A), meta(step, 1, B), prefixes=(f"run/{name}/{A}.data/", f"{B}.data/"))


def test_known_checksums() -> None:
    assert checksums.md5_base64(b"hello") == "XUFAKrxLKna5cZ2REBfFkg=="
    assert checksums.crc32c_base64(b"hello") == "mnG7TA=="


@pytest.mark.parametrize("checksum", ["md5", "crc32c"])
def test_metas_are_matched_to_data_by_checksum(checksum: str) -> None:
    found = catalogue.read_listing(
        "2025-10-22_09-05", [meta(5, 0, A, checksum=checksum), meta(5, 1, B, checksum=checksum)], [f"{A}.data/"]
    )
    assert found.metas[names.meta_name("run", 5, 0)] == A
    assert found.to_read == (names.meta_name("run", 5, 1),)


def test_metas_without_checksums_are_read() -> None:
    name = names.meta_name("run", 5, 0)
    first = catalogue.read_listing("2025-10-22_09-05", [ListedObject(name)], [f"{A}.data/"])
    assert first.to_read == (name,)
    second = catalogue.read_listing("2025-10-22_09-05", [ListedObject(name)], [f"{A}.data/"], bodies={name: A})
    assert (second.metas, second.to_read) == ({name: A}, ())


def test_data_may_be_a_file() -> None:
    found = listing("2025-10-22_09-05", ListedObject(f"{A}.data"), ListedObject("notes.txt"))
    assert (found.data, found.other) == ({f"{A}.data"}, {"notes.txt"})


def test_states() -> None:
    old, young = "2025-10-22_09-05", "2025-10-22_11-50"
    half = (meta(7, 0, A), meta(7, 1, B))
    cases = {
        BackupState.COMPLETE: complete(young, 7),
        BackupState.IN_FLIGHT: listing(young, *half, prefixes=(f"{A}.data/", f"{B}.data.tmp/")),
        BackupState.INCOMPLETE: listing(old, *half, prefixes=(f"{A}.data/",)),
        BackupState.EMPTY: listing(old),
        BackupState.FOREIGN: listing(old, meta(7, 0, A, job="other"), prefixes=(f"{A}.data/",)),
    }
    for state, case in cases.items():
        (backup,) = judge(case).backups
        assert backup.state is state
        assert bool(backup.reasons) is (state is not BackupState.COMPLETE)


def test_a_directory_just_made_may_still_be_filled() -> None:
    assert judge(listing("2025-10-22_11-59")).backups[0].state is BackupState.IN_FLIGHT


def test_a_late_object_keeps_a_backup_in_flight() -> None:
    item = ListedObject(names.meta_name("run", 7, 0), created=NOW - timedelta(minutes=1))
    assert judge(listing("2025-10-22_09-05", item)).backups[0].state is BackupState.IN_FLIGHT


def test_an_impossible_date_is_foreign_and_other_names_are_left_out() -> None:
    found = judge(complete("2025-13-01_00-00", 5), listing("everstep"), listing("trash-2025-10-22_09-05"))
    assert [(backup.name, backup.state) for backup in found.backups] == [("2025-13-01_00-00", BackupState.FOREIGN)]


def test_several_steps_in_one_directory() -> None:
    name = "2025-10-22_09-05"
    both = listing(name, meta(7, 0, A), meta(7, 1, B), meta(12, 0, A), prefixes=(f"{A}.data/", f"{B}.data/"))
    (backup,) = judge(both).backups
    assert (backup.state, backup.step) == (BackupState.COMPLETE, 7)


def test_newest_first() -> None:
    found = judge(complete("2025-10-22_09-05", 5), complete("2025-10-22_11-05", 9), complete("2024-12-31_23-59", 2))
    assert [backup.step for backup in found.complete] == [9, 5, 2]


def test_the_newest_complete_backup_is_last_known_good() -> None:
    found = judge(complete("2025-10-22_09-05", 9), complete("2025-10-22_10-05", 5), listing("2025-10-22_11-05"))
    assert last_known_good.select(found, []) == last_known_good.LastKnownGood(5, "backup", "2025-10-22_10-05")


def test_a_newer_durable_save_wins() -> None:
    found = judge(complete("2025-10-22_09-05", 9))
    assert last_known_good.select(found, [4, 10]) == last_known_good.LastKnownGood(10, "durable", "checkpoints/10")
    assert last_known_good.select(found, [4, 9]) == last_known_good.LastKnownGood(9, "backup", "2025-10-22_09-05")


def test_bound_and_quarantine() -> None:
    found = judge(complete("2025-10-22_09-05", 5), complete("2025-10-22_10-05", 9))
    bounded = last_known_good.select(found, [8, 20], bound_step=7)
    assert bounded == last_known_good.LastKnownGood(5, "backup", "2025-10-22_09-05", ("2025-10-22_10-05",))
    quarantined = last_known_good.select(found, [6], quarantined=["2025-10-22_10-05", "checkpoints/6"])
    assert quarantined is not None
    assert (quarantined.step, quarantined.shadowed_by) == (5, ("2025-10-22_10-05",))


def test_nothing_is_left() -> None:
    assert last_known_good.select(judge(), [0]) is None
    assert last_known_good.select(judge(complete("2025-10-22_10-05", 9)), [], bound_step=8) is None
