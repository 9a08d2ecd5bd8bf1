"""Which node gets which rank: kept over restarts wherever possible, since a RAM disk fits one rank only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeReport:
    """A node of an attempt: its pool, the rank it remembers (None: none), and the rank by the JobSet's indexes."""

    node: str
    pool: str
    cached: int | None
    initial: int


@dataclass(frozen=True)
class Assignment:
    """Rank by node. `invalidates`: remembered ranks were dropped, so local checkpoints fit no longer."""

    ranks: dict[str, int]
    invalidates: bool = False


def assign(reports: Sequence[NodeReport], slices: int, slice_size: int) -> Assignment:
    """Tries in turn: all ranks remembered; remembered ones agree with the JobSet's; holes filled; all anew."""
    total = slices * slice_size
    cached = {report.node: report.cached for report in reports if report.cached is not None}
    distinct = len(set(cached.values())) == len(cached) and all(0 <= rank < total for rank in cached.values())
    if distinct and len(cached) == total:
        return Assignment(dict(cached))
    if all(report.cached in (None, report.initial) for report in reports):
        return Assignment({report.node: report.initial for report in reports})
    filled = _filled(reports, cached, slices, slice_size) if distinct else None
    if filled is not None:
        return Assignment(filled)
    return Assignment(_by_topology(reports), invalidates=True)


def _filled(
    reports: Sequence[NodeReport], cached: dict[str, int], slices: int, slice_size: int
) -> dict[str, int] | None:
    """Missing ranks go to new nodes of the same pool, whole missing slices to unused pools; None: impossible."""
    pools: dict[str, list[NodeReport]] = defaultdict(list)
    for report in reports:
        pools[report.pool].append(report)
    slice_of_pool: dict[str, int] = {}
    for report in reports:
        if report.node in cached:
            found = cached[report.node] // slice_size
            if slice_of_pool.setdefault(report.pool, found) != found:
                return None
    if len(set(slice_of_pool.values())) != len(slice_of_pool):
        return None
    unused_pools = sorted(
        (pool for pool in pools if pool not in slice_of_pool),
        key=lambda pool: min(report.initial for report in pools[pool]),
    )
    missing_slices = [number for number in range(slices) if number not in slice_of_pool.values()]
    if len(unused_pools) != len(missing_slices):
        return None
    slice_of_pool.update(zip(unused_pools, missing_slices, strict=True))
    ranks = dict(cached)
    for pool, number in slice_of_pool.items():
        wanted = set(range(number * slice_size, (number + 1) * slice_size))
        holes = sorted(wanted - set(ranks.values()))
        new = sorted((one for one in pools[pool] if one.node not in cached), key=lambda one: one.initial)
        if len(holes) != len(new):
            return None
        ranks.update({report.node: rank for report, rank in zip(new, holes, strict=True)})
    return ranks


def _by_topology(reports: Sequence[NodeReport]) -> dict[str, int]:
    """Pool after pool, inside a pool by the JobSet's order."""
    first = defaultdict(list)
    for report in reports:
        first[report.pool].append(report.initial)
    ordered = sorted(reports, key=lambda report: (min(first[report.pool]), report.pool, report.initial))
    return {report.node: rank for rank, report in enumerate(ordered)}
