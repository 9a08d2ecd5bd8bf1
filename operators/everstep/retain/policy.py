"""Which backups a retention policy keeps, and why. Pure: names and times in, reasons out.

Calendar periods are those of backup-warden 1.0.16, which people use on these backups today: of each minute, hour, day,
week, month or year (a *slot*) one backup is picked; picks within ``count`` units of the newest backup are kept, at most
``count`` of them. One difference is deliberate: a week belongs to the ISO year that it lies in, so that the days around
New Year stay one week (backup-warden files 29-31 December of an ISO week 1 under January of the old year).
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

Period = Literal["minutely", "hourly", "daily", "weekly", "monthly", "yearly"]
Count = int | Literal["always"]

PERIODS: tuple[Period, ...] = ("minutely", "hourly", "daily", "weekly", "monthly", "yearly")


@dataclass(frozen=True)
class Policy:
    """What to keep; a backup that any rule keeps is kept.

    ``periods`` gives a count of slots for each period, or ``"always"`` for all of them; a period that is missing or 0
    keeps nothing. ``keep_last`` is the number of newest backups that are kept whatever their dates. With
    ``prefer_recent`` the newest backup of a slot is picked, else the oldest.
    """

    periods: Mapping[Period, Count] = field(default_factory=dict)
    keep_last: int = 2
    prefer_recent: bool = True

    def __post_init__(self) -> None:
        unknown = sorted(set(self.periods) - set(PERIODS))
        if unknown:
            raise ValueError(f"retention periods {unknown}: expected some of {list(PERIODS)}")
        for period, count in self.periods.items():
            if count != "always" and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise ValueError(f"retention {period}={count!r}: expected a whole number from 0, or 'always'")
        if self.keep_last < 1:
            raise ValueError(f"retention keep_last={self.keep_last}: expected at least 1, so that a backup is left")


def reasons_to_keep(backups: Iterable[tuple[str, datetime]], policy: Policy) -> dict[str, tuple[str, ...]]:
    """For each backup (name, time) the rules that keep it; an empty tuple means that none does.

    Only complete backups belong in here: one that can't be restored must not push out one that can.
    """
    ordered = sorted(backups, key=lambda backup: (backup[1], backup[0]))
    reasons: dict[str, list[str]] = {name: [] for name, _ in ordered}
    for name, _ in ordered[-policy.keep_last :]:
        reasons[name].append(f"among the newest {policy.keep_last}")
    for period in PERIODS:
        count = policy.periods.get(period, 0)
        for name in _kept_by_period(ordered, period, count, prefer_recent=policy.prefer_recent):
            reasons[name].append(f"{period} {count}")
    return {name: tuple(found) for name, found in reasons.items()}


def _kept_by_period(
    ordered: list[tuple[str, datetime]], period: Period, count: Count, *, prefer_recent: bool
) -> list[str]:
    if count == 0 or not ordered:
        return []
    slots: dict[tuple[int, ...], list[tuple[str, datetime]]] = {}
    for backup in ordered:
        slots.setdefault(_SLOTS[period](backup[1]), []).append(backup)
    picks = [members[-1 if prefer_recent else 0] for members in slots.values()]
    if count == "always":
        return [name for name, _ in picks]
    oldest_kept = _back(ordered[-1][1], period, count)
    return [name for name, time in picks if time >= oldest_kept][-count:]


_SLOTS: Mapping[Period, Callable[[datetime], tuple[int, ...]]] = {
    "minutely": lambda time: (time.year, time.month, time.day, time.hour, time.minute),
    "hourly": lambda time: (time.year, time.month, time.day, time.hour),
    "daily": lambda time: (time.year, time.month, time.day),
    "weekly": lambda time: time.isocalendar()[:2],
    "monthly": lambda time: (time.year, time.month),
    "yearly": lambda time: (time.year,),
}


def _back(time: datetime, period: Period, count: int) -> datetime:
    """``count`` periods before ``time``; months and years keep the day, or take the month's last one."""
    match period:
        case "minutely":
            return time - timedelta(minutes=count)
        case "hourly":
            return time - timedelta(hours=count)
        case "daily":
            return time - timedelta(days=count)
        case "weekly":
            return time - timedelta(weeks=count)
        case "monthly":
            return _months_before(time, count)
        case "yearly":
            return _months_before(time, 12 * count)


def _months_before(time: datetime, months: int) -> datetime:
    year, month = divmod(time.year * 12 + time.month - 1 - months, 12)
    if year < 1:
        return time.replace(year=1, month=1, day=1)
    return time.replace(year=year, month=month + 1, day=min(time.day, calendar.monthrange(year, month + 1)[1]))
