"""Lines on the terminal that say what is going on, with the seconds since the start."""

from __future__ import annotations

import sys
import threading
import time


class Progress:
    """Prints one line an event; safe to call from several threads."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, message: str) -> None:
        with self._lock:
            sys.stdout.write(f"[{time.monotonic() - self._started:5.0f} s] {message}\n")
            sys.stdout.flush()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started
