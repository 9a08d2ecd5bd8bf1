from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from everstep.checkpoints import names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("j-s100-n0-w0.meta", names.MetaName("j", 100, 0, 0)),
        ("run-s5-n0-w0-s60-n1-w2.meta", names.MetaName("run-s5-n0-w0", 60, 1, 2)),
        ("j-s100-n0-w0.meta.tmp", None),
        ("j-s100-n0-w0.meta\n", None),
        ("-s100-n0-w0.meta", None),
        ("a/j-s100-n0-w0.meta", None),
        ("j-s١٠-n0-w0.meta", None),
        ("j-s-1-n0-w0.meta", None),
        ("j-s100-n0-w0.restore", None),
    ],
)
def test_meta_names_are_parsed_from_the_right(name: str, expected: names.MetaName | None) -> None:
    assert names.parse_meta(name) == expected


def test_a_made_meta_name_parses_back() -> None:
    assert names.parse_meta(names.meta_name("a-s1-n2-w3", 7, 8)) == names.MetaName("a-s1-n2-w3", 7, 8, 0)


@pytest.mark.parametrize(
    ("name", "expected"), [("0", 0), ("0100", 100), ("100.orbax-checkpoint-tmp", None), ("step=5", None), ("٣", None)]
)
def test_step_directories_are_digits_only(name: str, expected: int | None) -> None:
    assert names.parse_step(name) == expected


def test_backup_directories_are_real_minutes() -> None:
    assert names.parse_backup_directory("2025-10-22_09-05") == datetime(2025, 10, 22, 9, 5, tzinfo=UTC)
    for other in ("2025-13-22_09-05", "2025-10-22_24-00", "2025-10-22_09-05-00", "x2025-10-22_09-05", "2025-10-22"):
        assert names.parse_backup_directory(other) is None
    assert names.looks_like_backup("2025-13-22_09-05")
    assert not names.looks_like_backup("trash-2025-10-22_09-05")


def test_backup_directories_are_named_in_utc() -> None:
    moment = datetime(2025, 10, 22, 9, 5, 59, tzinfo=timezone(timedelta(hours=9)))
    assert names.backup_directory(moment) == "2025-10-22_00-05"


def test_data_names() -> None:
    digest = "D" + "a" * 64
    assert names.is_data_name(f"{digest}.data")
    assert names.is_data_name("0" * 64 + ".data")
    assert names.digest_of_data(names.data_name(digest)) == digest
    for other in (f"{digest}.data.tmp", "D" + "a" * 63 + ".data", "D" + "A" * 64 + ".data", digest):
        assert not names.is_data_name(other)
