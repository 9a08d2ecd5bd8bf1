"""Batches by step: the same step gives the same bytes in every process, attempt and run on a machine."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

MAX_BYTES = 8 << 20
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__", "lib2to3"})


class Corpus:
    """The text, one long array of bytes."""

    def __init__(self, text: bytes) -> None:
        self._text = np.frombuffer(text, dtype=np.uint8)

    @classmethod
    def of_standard_library(cls) -> Corpus:
        """The running interpreter's standard library, files in the order of their paths, up to MAX_BYTES."""
        root = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(path for path in root.rglob("*.py") if not _LEFT_OUT.intersection(path.relative_to(root).parts))
        text = bytearray()
        for path in files:
            text += path.read_bytes()
            if len(text) >= MAX_BYTES:
                break
        return cls(bytes(text[:MAX_BYTES]))

    def batch(self, step: int, *, sequences: int, length: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
        """``sequences`` rows of ``length + 1`` bytes: inputs and, one later, targets."""
        places = np.random.default_rng([20251022, step]).integers(0, len(self._text) - length - 1, sequences)
        rows = self._text[places[:, None] + np.arange(length + 1)]
        batch: np.ndarray[tuple[int, int], np.dtype[np.int32]] = rows.astype(np.int32)
        return batch
