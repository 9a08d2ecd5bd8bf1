"""Waiting for files of a directory by kernel events, with a slow poll in case one was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_Found = TypeVar("_Found")

SAFETY_POLL_SECONDS = 2.0
"""Inotify does not report changes made on another host, nor events that overflow its queue."""


class Deadline:
    """One absolute point of monotonic time that many waits share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.seconds - self.elapsed)

    @property
    def passed(self) -> bool:
        return self.elapsed >= self.seconds


def wait_for(
    directory: Path,
    look: Callable[[], _Found | None],
    deadline: Deadline,
    *,
    share: float = 1.0,
) -> _Found | None:
    """Call ``look`` now, and again whenever the directory changes, until it returns something.

    :param look: returns None as long as there is nothing yet; what it raises is raised
    :param share: use only up to this share of the deadline's whole time
    :returns: what ``look`` returned, or None once the time has passed
    """
    from watchfiles._rust_notify import RustNotify

    def left() -> float:
        return deadline.remaining - deadline.seconds * (1.0 - share)

    notify = RustNotify([str(directory)], False, False, 300, False, True)
    try:
        while True:
            # Looked at after the watch began, so that no change falls between the two.
            found = look()
            if found is not None or left() <= 0:
                return found
            timeout = int(1000 * min(SAFETY_POLL_SECONDS, left())) + 1
            if notify.watch(debounce_ms=100, step_ms=20, timeout_ms=timeout, stop_event=None) == "signal":
                raise KeyboardInterrupt
    finally:
        notify.close()
