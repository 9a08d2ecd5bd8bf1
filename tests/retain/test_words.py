"""Amounts, times and people in words."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from everstep.retain.words import amount, counted, duration


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (timedelta(0), "0 seconds"),
        (timedelta(seconds=1), "1 second"),
        (timedelta(seconds=59.96), "60 seconds"),
        (timedelta(minutes=90), "1.5 hours"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(hours=36), "36 hours"),
        (timedelta(hours=48), "2 days"),
        (timedelta(days=1234567), "1,234,567 days"),
    ],
)
def test_times_in_words(time: timedelta, said: str) -> None:
    assert duration(time) == said


def test_amounts_in_words() -> None:
    assert [amount(size) for size in (None, 0, 1023, 1024, 3 << 40, 5 << 60)] == [
        "?",
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 TiB",
        "5120.0 PiB",
    ]
    assert [counted(number, "object") for number in (0, 1, 2_000_000)] == ["0 objects", "1 object", "2,000,000 objects"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that nobody knows")
def test_a_user_without_a_name_is_a_number() -> None:
    code = "import os, pwd; from everstep.retain import somebody; os.setuid(54321); print(somebody.user())"
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=False)
    assert done.stdout == "uid-54321\n", done.stderr
