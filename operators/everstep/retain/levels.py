"""One level of a folder: how much it holds, and how many are listed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from everstep.clients.requests import Listing
from everstep.retain import fingerprints
from everstep.retain.inventory import Contents

Item = TypeVar("Item")

TOGETHER = 32
"""Folders that are listed in one batch: what is held in memory at a time."""


def contents_of(level: Listing) -> Contents:
    """Return how much one level holds, and its fingerprint."""
    return Contents(
        fingerprints.of_listing(level.objects, level.folders),
        len(level.objects),
        sum(item.size for item in level.objects),
        len(level.folders),
    )


def batches(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """Return the items so many at a time."""
    for first in range(0, len(items), TOGETHER):
        yield items[first : first + TOGETHER]
