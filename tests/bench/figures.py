"""Small arithmetic on samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the least sample that at least `share` (0 to 1) of all samples do not exceed (nearest rank).

    Raises ValueError when there are no samples.
    """
    if not samples:
        raise ValueError("no samples: nothing was measured")
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def ratio(ours: float, theirs: float) -> float | None:
    """Return ours / theirs to three significant digits; None where theirs is nothing."""
    return float(f"{ours / theirs:.3g}") if theirs else None
