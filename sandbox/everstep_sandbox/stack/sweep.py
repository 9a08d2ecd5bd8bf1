"""Finds and ends whatever still runs of a sandbox, by the marks that its processes carry in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from everstep_sandbox.kubelet.process import MARKER
from everstep_sandbox.stack.parts import PART_MARKER

_GONE_SECONDS = 5.0


def survivors(directory: Path) -> list[int]:
    """Processes of this sandbox (parts, containers and what they started), this one and its ancestors excepted."""
    marks = [f"{name}={directory}|".encode() for name in (PART_MARKER, MARKER)]
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            variables = b"\0" + Path(f"/proc/{entry}/environ").read_bytes()
            if any(b"\0" + mark in variables for mark in marks):
                found.append(int(entry))
    return found


def kill_all(directory: Path) -> int:
    """Kills them and waits until they are gone; returns how many there were."""
    total = 0
    deadline = time.monotonic() + _GONE_SECONDS
    while (found := survivors(directory)) and time.monotonic() < deadline:
        total = max(total, len(found))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return total
