"""Calendar periods of a retention policy: to which slot a time belongs, and how far back a count of slots reaches."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal

Period = Literal["minutely", "hourly", "daily", "weekly", "monthly", "yearly"]
Count = int | Literal["always"]

PERIODS: tuple[Period, ...] = ("minutely", "hourly", "daily", "weekly", "monthly", "yearly")

SLOTS: Mapping[Period, Callable[[datetime], tuple[int, ...]]] = {
    "minutely": lambda time: (time.year, time.month, time.day, time.hour, time.minute),
    "hourly": lambda time: (time.year, time.month, time.day, time.hour),
    "daily": lambda time: (time.year, time.month, time.day),
    "weekly": lambda time: time.isocalendar()[:2],
    "monthly": lambda time: (time.year, time.month),
    "yearly": lambda time: (time.year,),
}


def back(time: datetime, period: Period, count: int) -> datetime:
    """Return `count` periods before `time`; months and years keep the day, or take the month's last one."""
    match period:
        case "minutely":
            return _earlier(time, timedelta(minutes=1), count)
        case "hourly":
            return _earlier(time, timedelta(hours=1), count)
        case "daily":
            return _earlier(time, timedelta(days=1), count)
        case "weekly":
            return _earlier(time, timedelta(weeks=1), count)
        case "monthly":
            return _months_before(time, count)
        case "yearly":
            return _months_before(time, 12 * count)


def _earlier(time: datetime, unit: timedelta, count: int) -> datetime:
    try:
        return time - unit * count
    except OverflowError:
        return datetime.min.replace(tzinfo=time.tzinfo)


def _months_before(time: datetime, months: int) -> datetime:
    year, month = divmod(time.year * 12 + time.month - 1 - months, 12)
    if year < 1:
        return datetime.min.replace(tzinfo=time.tzinfo)
    return time.replace(year=year, month=month + 1, day=min(time.day, calendar.monthrange(year, month + 1)[1]))
