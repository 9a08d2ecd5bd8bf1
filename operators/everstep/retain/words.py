"""Amounts and times in words, for people. Pure."""

from __future__ import annotations

from datetime import timedelta

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0))


def amount(size: int | None) -> str:
    """Return bytes in the unit that suits them; a question mark where they are not known."""
    if size is None:
        return "?"
    value = float(size)
    for unit in _BYTES:
        if value < 1024 or unit == _BYTES[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def duration(time: timedelta) -> str:
    """Return a time in the largest unit of which it is at least one (of days, two), to a tenth of it."""
    seconds = time.total_seconds()
    for unit, size in _TIMES:
        if seconds >= (2 * size if unit == "day" else size):
            return counted(round(seconds / size, 1), unit)
    return counted(round(seconds, 1), "second")


def counted(number: float, what: str) -> str:
    """Return a number of things: `1 hour`, `2.5 hours`, `3 backups`."""
    shown = f"{int(number):,}" if number == int(number) else f"{number:,}"
    return f"{shown} {what}" if number == 1 else f"{shown} {what}s"
