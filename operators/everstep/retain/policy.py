"""Which checkpoints a retention policy keeps, and why. Pure: names, times, steps and metrics in, reasons out.

Calendar periods are those of backup-warden 1.0.16, which people use on these backups today: of each minute, hour, day,
week, month or year (a *slot*) one backup is picked; picks within ``count`` units of the newest backup are kept, at most
``count`` of them. The differences that are meant stand in docs/reference/retention.md; one is made here: a week belongs
to the ISO year that it lies in, so the days around New Year stay one week (backup-warden files 29-31 December of an
ISO week 1 under January of the old year). The others are made by what is handed in: complete ones only, none from the
future.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from everstep.retain.calendar import PERIODS, SLOTS, Count, Period, back
from everstep.retain.words import duration

__all__ = ["PERIODS", "Best", "Candidate", "Count", "Period", "Policy", "reasons_to_keep"]


PINNED = "pinned by the policy"


@dataclass(frozen=True)
class Best:
    """Keep the ``count`` best by a metric. One whose metric is unknown, NaN or infinite is never among the best."""

    metric: str
    count: int = 1
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if not self.metric or self.count < 1 or self.mode not in ("min", "max"):
            raise ValueError(f"retention best={self}: expected a metric, a count of at least 1, and min or max")


@dataclass(frozen=True)
class Candidate:
    """A complete checkpoint. ``step`` and ``metric`` are None where nothing is known of them."""

    name: str
    time: datetime
    step: int | None = None
    metric: float | None = None


@dataclass(frozen=True)
class Policy:
    """What to keep; a checkpoint that any rule keeps is kept.

    ``periods`` gives a count of slots for each period, or ``"always"`` for all of them; a period that is missing or 0
    keeps nothing. With ``prefer_recent`` the newest of a slot is picked, else the oldest; with ``relaxed`` slots are
    counted only, however far back they lie. ``keep_last`` is the number of newest ones that are kept whatever their
    dates; ``every_steps`` keeps steps that it divides; ``within`` keeps what is younger than that. ``pins`` are names.
    """

    periods: Mapping[Period, Count] = field(default_factory=dict)
    keep_last: int = 2
    prefer_recent: bool = True
    relaxed: bool = False
    every_steps: int | None = None
    within: timedelta | None = None
    best: Best | None = None
    pins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.periods) - set(PERIODS))
        if unknown:
            raise ValueError(f"retention periods {unknown}: expected some of {list(PERIODS)}")
        for period, count in self.periods.items():
            if count != "always" and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise ValueError(f"retention {period}={count!r}: expected a whole number from 0, or 'always'")
        if self.keep_last < 1:
            raise ValueError(f"retention keep_last={self.keep_last}: expected at least 1, so that a backup is left")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"retention every_steps={self.every_steps}: expected at least 1")
        if self.within is not None and self.within <= timedelta(0):
            raise ValueError(f"retention within={self.within}: expected more than nothing")

    def as_dict(self) -> dict[str, Any]:
        """Return the policy as JSON values."""
        return {
            **{str(period): self.periods.get(period, 0) for period in PERIODS},
            "keep_last": self.keep_last,
            "prefer_recent": self.prefer_recent,
            "relaxed": self.relaxed,
            "every_steps": self.every_steps,
            "within_seconds": None if self.within is None else self.within.total_seconds(),
            "best": None if self.best is None else vars(self.best),
            "pins": list(self.pins),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Policy:
        """Return the policy that `as_dict` described. Raises KeyError, TypeError or ValueError on anything else."""
        within, best = document["within_seconds"], document["best"]
        return cls(
            {period: document[period] for period in PERIODS},
            keep_last=document["keep_last"],
            prefer_recent=document["prefer_recent"],
            relaxed=document["relaxed"],
            every_steps=document["every_steps"],
            within=None if within is None else timedelta(seconds=within),
            best=None if best is None else Best(**best),
            pins=tuple(document["pins"]),
        )


def reasons_to_keep(
    checkpoints: Iterable[Candidate], policy: Policy, *, now: datetime | None = None
) -> dict[str, tuple[str, ...]]:
    """For each checkpoint the rules that keep it; an empty tuple means that none does.

    Only complete ones belong in here: one that can't be restored must not push out one that can.

    :param now: the time that `within` counts back from; without it, the newest checkpoint's
    """
    ordered = sorted(checkpoints, key=lambda each: (each.time, each.name))
    reasons: dict[str, list[str]] = {each.name: [] for each in ordered}
    for each in ordered[-policy.keep_last :]:
        reasons[each.name].append(f"among the newest {policy.keep_last}")
    for period in PERIODS:
        for name in _kept_by_period(ordered, period, policy):
            reasons[name].append(f"{period} {policy.periods[period]}")
    for each in ordered:
        if policy.every_steps and each.step is not None and each.step % policy.every_steps == 0:
            reasons[each.name].append(f"every {policy.every_steps} steps")
        if policy.within and (now or ordered[-1].time) - each.time <= policy.within:
            reasons[each.name].append(f"within {duration(policy.within)}")
        if each.name in policy.pins:
            reasons[each.name].append(PINNED)
    for each in _best(ordered, policy.best):
        assert policy.best is not None
        reasons[each.name].append(f"among the best {policy.best.count} by {policy.best.metric} ({each.metric:g})")
    return {name: tuple(found) for name, found in reasons.items()}


def _kept_by_period(ordered: Sequence[Candidate], period: Period, policy: Policy) -> list[str]:
    count = policy.periods.get(period, 0)
    if count == 0 or not ordered:
        return []
    slots: dict[tuple[int, ...], list[Candidate]] = {}
    for each in ordered:
        slots.setdefault(SLOTS[period](each.time), []).append(each)
    picks = [members[-1 if policy.prefer_recent else 0] for members in slots.values()]
    if count == "always":
        return [each.name for each in picks]
    if not policy.relaxed:
        oldest_kept = back(ordered[-1].time, period, count)
        picks = [each for each in picks if each.time >= oldest_kept]
    return [each.name for each in picks[-count:]]


def _best(ordered: Sequence[Candidate], best: Best | None) -> list[Candidate]:
    """The later one wins between equals: it has seen more."""
    if best is None:
        return []
    sign = 1 if best.mode == "min" else -1
    measured = [each for each in reversed(ordered) if each.metric is not None and math.isfinite(each.metric)]
    return sorted(measured, key=lambda each: sign * (each.metric or 0.0))[: best.count]
