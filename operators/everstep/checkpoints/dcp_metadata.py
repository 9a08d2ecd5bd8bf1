"""What PyTorch DCP's ``.metadata`` says of its data files, read without running anything that it names. Pure.

The file is a pickle of records of `torch.distributed.checkpoint.metadata`: its `storage_data` holds, for each piece of
a tensor, in which file it lies (`relative_path`), from which byte on (`offset`), and how long it is (`length`). An
ordinary unpickling imports and calls whatever such a file names. Here every name stands for an inert record instead, so
neither torch is needed nor trust in who wrote the file.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - only with all names in it made inert, so that nothing runs
from typing import Any


def files(metadata: bytes) -> dict[str, int]:
    """Return the data files that ``.metadata`` names, each with the bytes that it must have at least.

    Raises ValueError when the file is torn, or is not what DCP writes.
    """
    try:
        document = _Reader(io.BytesIO(metadata)).load()
        found: dict[str, int] = {}
        for piece in document.storage_data.values():
            end = int(piece.offset) + int(piece.length)
            found[str(piece.relative_path)] = max(end, found.get(str(piece.relative_path), 0))
    except Exception as wrong:
        # What a broken pickle raises is up to its bytes.
        raise ValueError(f"{type(wrong).__name__}: {wrong}") from None
    return found


class _Record:
    """Takes whatever a pickle does to an object, and keeps what it sets."""

    def __new__(cls, *_: Any, **__: Any) -> _Record:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take any arguments."""

    def __setstate__(self, state: Any) -> None:
        """Take the attributes of a plain record; the states of others don't matter here."""
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Take an item, as a subclass of dict does."""

    def append(self, value: Any) -> None:
        """Take an item, as a subclass of list does."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Record]:
        return type(name, (_Record,), {})
