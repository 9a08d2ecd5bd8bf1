"""Notes that triggers leave for the bench: one JSON object a line, in one file."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any

NOTES = "EVERSTEP_BENCH_NOTES"
"""Environment variable: path of the file."""


def note(what: str, name: str, **more: Any) -> None:
    """Append a line. `at` is the time in seconds since the epoch."""
    os.write(_descriptor(), (json.dumps({"what": what, "name": name, "at": time.time(), **more}) + "\n").encode())


@cache
def _descriptor() -> int:
    return os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
