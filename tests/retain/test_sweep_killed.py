"""kill -9 at every request of a sweep and of an undo, in real processes on a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(("mode", "at_least"), [("folders", 40), ("flat", 40), ("undo", 30)])
def test_whatever_is_killed_is_whole_and_the_next_start_ends_it(cloud_storage: Any, mode: str, at_least: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.retain.killed_sweeps", cloud_storage.address, mode],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= at_least
