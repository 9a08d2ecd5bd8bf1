"""Imports that an event loop does not wait for."""

from __future__ import annotations

import asyncio
import importlib
import sys


async def loaded(module: str) -> None:
    """Import a module in a thread, with all that it imports, so that importing from it afterwards costs nothing."""
    present = sys.modules.get(module)
    # A module that another thread is still importing is present too, and not yet usable.
    if present is None or getattr(present.__spec__, "_initializing", False):
        await asyncio.to_thread(importlib.import_module, module)
