"""The calendar rules against cases whose answers can be read off a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.retain.policy import Best, Candidate, Policy, reasons_to_keep


def name_of(time: datetime) -> str:
    return time.strftime("%Y-%m-%d_%H-%M")


def kept(times: list[datetime], policy: Policy) -> list[str]:
    reasons = reasons_to_keep([Candidate(name_of(time), time) for time in times], policy)
    return sorted(name for name, why in reasons.items() if why)


NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def test_every_half_hour_for_two_days_keeps_the_newest_of_each_hour() -> None:
    times = [NOON - timedelta(minutes=30 * index) for index in range(96)]
    assert kept(times, Policy({"hourly": 3}, keep_last=1)) == [
        "2026-03-10_10-30",
        "2026-03-10_11-30",
        "2026-03-10_12-00",
    ]


def test_the_oldest_of_each_hour_when_older_ones_are_preferred() -> None:
    times = [NOON - timedelta(minutes=30 * index) for index in range(8)]
    assert kept(times, Policy({"hourly": 3}, keep_last=1, prefer_recent=False)) == [
        "2026-03-10_10-00",
        "2026-03-10_11-00",
        "2026-03-10_12-00",
    ]


def test_a_window_reaches_back_from_the_newest_backup_and_not_from_now() -> None:
    long_ago = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3, 20)]
    assert kept(long_ago, Policy({"daily": 7}, keep_last=1)) == ["2020-01-20_00-00"]


def test_a_window_includes_its_edge() -> None:
    edge = NOON - timedelta(days=7)
    assert name_of(edge) in kept([edge, NOON], Policy({"daily": 7}, keep_last=1))
    assert name_of(edge - timedelta(minutes=1)) not in kept(
        [edge - timedelta(minutes=1), NOON], Policy({"daily": 7}, keep_last=1)
    )


def test_months_end_where_the_calendar_says() -> None:
    newest = datetime(2026, 3, 31, tzinfo=UTC)
    february = datetime(2026, 2, 28, tzinfo=UTC)
    assert name_of(february) in kept([february, newest], Policy({"monthly": 1 + 1}, keep_last=1))


def test_the_week_of_new_year_is_one_week() -> None:
    turn_of_the_year = [datetime(2024, 12, 30, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC)]
    assert kept(turn_of_the_year, Policy({"weekly": 5}, keep_last=1)) == ["2025-01-02_00-00"]


def test_december_of_iso_week_one_is_not_january_of_the_same_year() -> None:
    times = [datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 12, 31, tzinfo=UTC)]
    assert kept(times, Policy({"weekly": "always"}, keep_last=1)) == ["2024-01-03_00-00", "2024-12-31_00-00"]


def test_always_keeps_one_of_every_slot_however_old() -> None:
    times = [datetime(year, 6, 1, tzinfo=UTC) for year in range(2000, 2026)]
    assert len(kept(times, Policy({"yearly": "always"}, keep_last=1))) == 26


@pytest.mark.parametrize("count", [-1, 1.5, "forever", True])
def test_a_count_that_means_nothing_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="hourly"):
        Policy({"hourly": count})  # type: ignore[dict-item]


def test_a_policy_that_could_keep_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_last=0"):
        Policy(keep_last=0)


def test_relaxed_slots_are_counted_however_far_back_they_lie() -> None:
    long_ago = [datetime(year, 1, 1, tzinfo=UTC) for year in (2001, 2005, 2026)]
    assert len(kept(long_ago, Policy({"daily": 2}, keep_last=1))) == 1
    assert len(kept(long_ago, Policy({"daily": 2}, keep_last=1, relaxed=True))) == 2


def test_rules_for_training_keep_in_union() -> None:
    history = [
        Candidate("a", NOON - timedelta(days=9), 1000, 0.5),
        Candidate("b", NOON - timedelta(days=8), 1500, 0.1),
        Candidate("c", NOON - timedelta(days=7), 1700, float("nan")),
        Candidate("d", NOON - timedelta(days=6), 1800, None),
        Candidate("e", NOON - timedelta(hours=3), 1900, 0.9),
        Candidate("f", NOON, 1950, 0.8),
    ]
    policy = Policy(keep_last=1, every_steps=1000, within=timedelta(hours=3), best=Best("loss"), pins=("d",))
    why = reasons_to_keep(history, policy, now=NOON)
    assert why == {
        "a": ("every 1000 steps",),
        "b": ("among the best 1 by loss (0.1)",),
        "c": (),
        "d": ("pinned by the policy",),
        "e": ("within 3 hours",),
        "f": ("among the newest 1", "within 3 hours"),
    }


def test_nan_is_never_the_best_and_of_equals_the_later_one_is() -> None:
    history = [
        Candidate(str(step), NOON + timedelta(hours=step), step, metric)
        for step, metric in enumerate([0.9, 0.9, float("nan"), float("inf"), float("-inf"), 0.1], 1)
    ]
    best = reasons_to_keep(history, Policy(keep_last=1, best=Best("accuracy", mode="max")))
    assert [name for name, why in best.items() if any("best" in each for each in why)] == ["2"]


def test_a_policy_survives_its_dictionary() -> None:
    policy = Policy({"hourly": 3, "yearly": "always"}, 4, False, True, 100, timedelta(hours=1), Best("x"), ("p",))
    again = Policy.from_dict(policy.as_dict())
    assert again.as_dict() == policy.as_dict()
    assert again == Policy.from_dict(again.as_dict())


minutes = st.integers(min_value=0, max_value=5 * 366 * 24 * 60)
counts = st.one_of(st.integers(min_value=0, max_value=30), st.just("always"))


@given(
    offsets=st.lists(minutes, min_size=1, max_size=60, unique=True),
    periods=st.dictionaries(st.sampled_from(["minutely", "hourly", "daily", "weekly", "monthly", "yearly"]), counts),
    keep_last=st.integers(min_value=1, max_value=5),
    prefer_recent=st.booleans(),
)
def test_the_newest_are_always_kept(
    offsets: list[int], periods: dict[str, object], keep_last: int, prefer_recent: bool
) -> None:
    times = sorted(NOON - timedelta(minutes=offset) for offset in offsets)
    policy = Policy(periods, keep_last=keep_last, prefer_recent=prefer_recent)  # type: ignore[arg-type]
    assert {name_of(time) for time in times[-keep_last:]} <= set(kept(times, policy))
