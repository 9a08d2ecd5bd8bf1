"""When the next look for a backup is worth its requests. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import datetime
from statistics import median

from everstep.checkpoints import names

LEAST_SECONDS = 10.0
MOST_SECONDS = 300.0
# The distances that count: a run's interval may have been another one long ago.
DISTANCES = 5
# An upload takes a while, and then the directory's minute is past: looks within a part of the interval find it early.
PARTS = 10


def seconds_to_next_look(dated: Iterable[str], *, in_flight: bool, now: datetime, least: float) -> float:
    """Return how long to wait, from the names of the backups that there are.

    While a backup is on its way, and before the rhythm of the backups is known, looks come at the least interval.
    Otherwise they begin when the next backup is due, but never more than five minutes apart, since a checkpoint that
    the trainer saves by itself keeps no rhythm; and they are a tenth of the backups' interval apart, since no answer
    can be fresher than the backups are.

    :param dated: names of dated directories; others are left out
    :param now: aware
    :param least: seconds that the caller wants at least between looks; longer ones than five minutes are kept
    """
    least = max(least, 0.0)
    times = sorted(time for time in map(names.parse_backup_directory, set(dated)) if time is not None)
    if in_flight or len(times) < 2:
        return least
    recent = times[-DISTANCES - 1 :]
    interval = median((later - earlier).total_seconds() for earlier, later in itertools.pairwise(recent))
    part = max(min(interval / PARTS, MOST_SECONDS), LEAST_SECONDS)
    until_due = interval - (now - recent[-1]).total_seconds()
    return max(least, min(max(part, until_due), MOST_SECONDS))
