"""GKE versions, such as 1.32.4-gke.1415000, and which of them have multi-tier checkpointing. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)-gke\.(\d+)")


@dataclass(frozen=True, order=True)
class GkeVersion:
    """A version, ordered as GKE counts: 1.9 before 1.10, and by the patch of GKE last."""

    major: int
    minor: int
    patch: int
    gke: int

    @classmethod
    def of(cls, text: str) -> GkeVersion:
        """Return what a text such as `1.32.4-gke.1415000` names. Raises ValueError for any other text."""
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError(f"a GKE version such as {LEAST_FOR_NEW}, not {text!r}")
        return cls(*(int(part) for part in found.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}-gke.{self.gke}"


# GKE's documentation of multi-tier checkpointing: at least this for a new cluster …
LEAST_FOR_NEW = GkeVersion(1, 32, 4, 1_415_000)
# … and later than this for one that exists.
TOO_OLD = GkeVersion(1, 32, 3, 1_170_000)
