"""The calendar rules against the real backup-warden 1.0.16: every difference is one of four that are meant.

Its command judges each parent directory alone, so one start with one policy judges thousands of histories. Each history
stands there twice: with everything that is in it, and with its complete backups of the past only. On the latter the
rules must agree to the last backup, but for

- *week*: a week belongs to its ISO year (with backup-warden's own idea of a week the decisions are equal);
- *newest*: the newest are kept whatever the periods say;

and from the former the decisions differ only by what is left out of the latter:

- *incomplete*: an incomplete backup keeps nothing else away;
- *future*: nor does a name from the future.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everstep.retain import calendar
from everstep.retain.policy import PERIODS, Candidate, Policy, reasons_to_keep

HISTORIES = int(os.environ.get("EVERSTEP_WARDEN_HISTORIES", "20000"))
NOW = datetime(2032, 6, 1, tzinfo=UTC)

POLICIES = [
    Policy({"hourly": 24, "daily": 7, "weekly": 5, "monthly": "always", "yearly": "always"}, keep_last=1),
    Policy({"hourly": 3, "daily": 2, "weekly": 2}, keep_last=2, prefer_recent=False),
    Policy({"weekly": 4}, keep_last=1),
    Policy({"minutely": 5, "weekly": "always", "monthly": 2}, keep_last=3, prefer_recent=False),
    Policy({"weekly": 3, "monthly": 3, "yearly": 2}, keep_last=1, relaxed=True),
    Policy({"daily": 400, "yearly": 3}, keep_last=1),
    Policy({"hourly": 100, "monthly": 13}, keep_last=2, relaxed=True, prefer_recent=False),
    Policy({"minutely": "always", "hourly": "always"}, keep_last=1),
]


@dataclass(frozen=True)
class History:
    """Names and, of them, those that are complete and not from the future."""

    times: tuple[datetime, ...]
    incomplete: frozenset[datetime] = frozenset()

    @property
    def future(self) -> frozenset[datetime]:
        return frozenset(time for time in self.times if time > NOW)

    @property
    def sound(self) -> tuple[datetime, ...]:
        return tuple(time for time in self.times if time not in self.incomplete and time <= NOW)


def name_of(time: datetime) -> str:
    return f"{time:%Y-%m-%d_%H-%M}"


def hand_made() -> Iterator[History]:
    for year in range(2012, 2032):
        turn = [datetime(year, 12, 24, 3, 7, tzinfo=UTC) + timedelta(days=day) for day in range(16)]
        yield History(tuple(turn))
        yield History((datetime(year, 1, 2, tzinfo=UTC), *(time for time in turn if time.year == year)))
        yield History((datetime(year, 1, 1, tzinfo=UTC), datetime(year, 12, 31, 23, 59, tzinfo=UTC)))
        yield History(tuple(datetime(year, month, 28, tzinfo=UTC) + timedelta(days=3) for month in range(1, 13)))
    leap = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    yield History((leap.replace(year=2023, day=28), leap, leap.replace(year=2025, day=28), leap.replace(year=2028)))
    half_hours = tuple(leap - timedelta(minutes=30 * number) for number in range(60))
    yield History(half_hours)
    yield History(half_hours, frozenset(half_hours[:1]))
    yield History((*half_hours, datetime(2099, 1, 1, tzinfo=UTC)))
    yield History((leap,), frozenset([leap]))
    yield History((leap,))
    edges = [
        timedelta(days=7),
        timedelta(days=7, minutes=1),
        timedelta(hours=24),
        timedelta(weeks=5),
        timedelta(weeks=2),
    ]
    yield History((leap, *(leap - edge for edge in edges)))


def random_history(chance: random.Random) -> History:
    time = datetime(2015, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(16 * 365 * 24 * 60))
    if chance.random() < 0.4:
        time = datetime(chance.randrange(2012, 2032), 12, 26, tzinfo=UTC) + timedelta(
            minutes=chance.randrange(14 * 1440)
        )
    stride = chance.choice([1, 30, 60, 1440, 1440, 3 * 1440, 20 * 1440])
    times = {time}
    for _ in range(chance.randrange(1, 9)):
        time -= timedelta(minutes=max(1, int(chance.expovariate(1 / stride))))
        times.add(time)
    incomplete = frozenset(each for each in times if chance.random() < 0.12) if chance.random() < 0.4 else frozenset()
    if chance.random() < 0.1:
        times.add(NOW + timedelta(minutes=chance.randrange(1, 3_000_000)))
    return History(tuple(sorted(times)), incomplete)


def kept_by_warden(root: Path, policy: Policy) -> dict[str, set[str]]:
    """Return by parent directory what the command would not delete."""
    command = [str(Path(sys.executable).with_name("backup-warden")), "--path", str(root)]
    command += ["--utc", "--no-update-check", "--no-recency-check", "--print-not-deleted"]
    for period in PERIODS:
        command += [f"--{period}", str(policy.periods.get(period, 0))]
    command += ["--prefer-recent"] * policy.prefer_recent + ["--relaxed"] * policy.relaxed
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kept: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        parent, name = Path(line).parts[-2:]
        kept.setdefault(parent, set()).add(name)
    return kept


def kept_by_periods(times: tuple[datetime, ...], policy: Policy) -> tuple[set[str], set[str]]:
    """Return what any period keeps, and what only being among the newest does."""
    reasons = reasons_to_keep([Candidate(name_of(time), time) for time in times], policy)
    newest = f"among the newest {policy.keep_last}"
    by_period = {name for name, why in reasons.items() if set(why) - {newest}}
    return by_period, {name for name, why in reasons.items() if why == (newest,)}


def warden_week(time: datetime) -> tuple[int, int]:
    """Its week, from its documentation and from watching it: of the calendar's year, 0 before the first ISO week."""
    year, week, _ = time.isocalendar()
    return time.year, 0 if time.year == year + 1 else week


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a disk that others use takes minutes for so many folders."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_every_difference_from_backup_warden_is_meant(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(20260310)
    made = list(hand_made())
    kinds: Counter[str] = Counter()
    for number, policy in enumerate(POLICIES):
        histories = made + [random_history(chance) for _ in range(HISTORIES // len(POLICIES) + 1)]
        root = quick_folder / f"p{number}"
        for index, history in enumerate(histories):
            for kind, times in (("all", history.times), ("sound", history.sound)):
                if kind == "sound" and times == history.times:
                    continue
                parent = root / f"{kind}-{index:05}"
                parent.mkdir(parents=True)
                for time in times:
                    (parent / name_of(time)).mkdir()
        kept = kept_by_warden(root, policy)
        for index, history in enumerate(histories):
            on_all = kept.get(f"all-{index:05}", set())
            is_sound = history.sound == history.times
            on_sound = on_all if is_sound else kept.get(f"sound-{index:05}", set())
            ours, newest_only = kept_by_periods(history.sound, policy)
            with monkeypatch.context() as patch:
                patch.setitem(calendar.SLOTS, "weekly", warden_week)  # type: ignore[arg-type]
                with_its_week, _ = kept_by_periods(history.sound, policy)
            assert with_its_week == on_sound, (policy, history)
            if ours != on_sound:
                assert policy.periods.get("weekly"), (policy, history)
                assert any(time.isocalendar().year != time.year for time in history.sound), (policy, history)
                kinds["week"] += 1
            if newest_only:
                kinds["newest"] += 1
            if on_all - {name_of(time) for time in history.incomplete | history.future} != on_sound:
                assert not is_sound
                kinds["incomplete" if history.incomplete else "future"] += 1
        kinds["histories"] += len(histories)
        shutil.rmtree(root)
    print(dict(kinds))
    assert kinds["histories"] >= HISTORIES
    assert all(kinds[kind] > HISTORIES / 500 for kind in ("week", "newest", "incomplete", "future")), kinds
