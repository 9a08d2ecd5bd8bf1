"""When the next look for a backup comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from everstep.watch.backup_rhythm import seconds_to_next_look

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def dated(*minutes_ago: float) -> list[str]:
    return [(NOW - timedelta(minutes=each)).strftime("%Y-%m-%d_%H-%M") for each in minutes_ago]


@pytest.mark.parametrize(
    ("minutes_ago", "least", "expected"),
    [
        pytest.param([], 30, 30, id="nothing is known yet"),
        pytest.param([5], 30, 30, id="one backup has no rhythm"),
        pytest.param([1, 31, 61], 30, 300, id="five minutes at most, though the next one is due in 29"),
        pytest.param([28, 58, 88], 30, 180, id="a tenth of the interval when it is due sooner"),
        pytest.param([26, 56, 86], 30, 240, id="when it is due"),
        pytest.param([45, 75, 105], 30, 180, id="overdue"),
        pytest.param([1, 3, 5], 30, 60, id="a short rhythm: when it is due"),
        pytest.param([1, 2, 3], 5, 10, id="ten seconds at least"),
        pytest.param([1, 2, 3], 60, 60, id="the caller's least interval"),
        pytest.param([28, 58, 88], 600, 600, id="a least interval beyond the longest one is kept"),
        pytest.param([2, 12, 22, 32, 42, 52, 600, 1200], 1, 300, id="only the last distances count"),
        pytest.param([9, 19, 29, 39, 49, 59, 600, 1200], 1, 60, id="and they are ten minutes here"),
    ],
)
def test_next_look(minutes_ago: list[float], least: float, expected: float) -> None:
    assert seconds_to_next_look(dated(*minutes_ago), in_flight=False, now=NOW, least=least) == expected


def test_a_backup_on_its_way_is_looked_at_soon() -> None:
    assert seconds_to_next_look(dated(1, 31, 61), in_flight=True, now=NOW, least=15) == 15


def test_names_that_are_no_backups_have_no_part_in_it() -> None:
    names = [*dated(28, 58, 88), "checkpoints", "2026-99-99_10-00"]
    assert seconds_to_next_look(names, in_flight=False, now=NOW, least=30) == 180
