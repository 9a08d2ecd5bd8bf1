"""One level of a folder: how much it holds, and how many are listed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from everstep.clients.requests import Listing
from everstep.retain import fingerprints
from everstep.retain.inventory import Contents

Item = TypeVar("Item")

TOGETHER = 256
"""Folders that are listed in one batch, at most."""
ENTRIES_TOGETHER = 50_000
"""Entries that are held in memory at a time, about."""


def together(entries: int) -> int:
    """Return how many folders of so many entries each are listed in one batch."""
    return max(8, min(TOGETHER, ENTRIES_TOGETHER // max(entries, 1)))


def contents_of(level: Listing) -> Contents:
    """Return how much one level holds, and its fingerprint."""
    return Contents(
        fingerprints.of_listing(level.objects, level.folders),
        len(level.objects),
        sum(item.size for item in level.objects),
        len(level.folders),
        sum(item.on_hold for item in level.objects),
    )


def batches(items: Sequence[Item], size: int = TOGETHER) -> Iterable[Sequence[Item]]:
    """Return the items so many at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
