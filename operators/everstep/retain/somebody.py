"""Who acts, where no Airflow tells it."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """Return the name of the user; in a container that knows none, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid-{os.getuid()}"
