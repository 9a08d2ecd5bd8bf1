"""`everstep sandbox …` on a directory, as a process of its own, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_sandbox(directory: Path, *words: str, expect: int = 0) -> str:
    """Run it to its end, which has to have the expected exit code, and return what it says on both outputs."""
    done = subprocess.run(
        [sys.executable, "-m", "everstep_sandbox", "sandbox", *words, f"--directory={directory}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr
