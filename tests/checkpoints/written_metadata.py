"""PyTorch DCP's ``.metadata``, written without torch: as much of its records as says where data lies."""

from __future__ import annotations

import pickle  # noqa: TID251 - written here, and never read with it
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class StorageInfo:
    """A piece of a tensor in a file."""

    relative_path: str
    offset: int
    length: int


@dataclass
class Metadata:
    """Where all pieces are."""

    storage_data: dict[str, StorageInfo] = field(default_factory=dict)


def metadata_of(pieces: Iterable[tuple[str, int, int]]) -> bytes:
    """Return the file for pieces of (file, offset, length)."""
    return pickle.dumps(Metadata({f"piece {number}": StorageInfo(*piece) for number, piece in enumerate(pieces)}))
