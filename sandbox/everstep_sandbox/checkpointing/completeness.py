"""Which step can be restored: the replicator's own rule, its inference over data parallel groups included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """What the restarting job says of itself."""

    nodes: int
    workers: int
    data_parallelism: int | None = None


@dataclass(frozen=True)
class Candidates:
    """Metas known, (step, node, worker) -> hash, and the hashes whose data is there, in one place."""

    metas: Mapping[tuple[int, int, int], str]
    data: Collection[str]

    def steps(self) -> list[int]:
        """Newest first."""
        return sorted({step for step, _, _ in self.metas}, reverse=True)


def newest_valid(candidates: Candidates, shape: Shape, complain: Callable[[str], None]) -> int | None:
    """The highest step that validates, 0 included; None when none does. Reasons go to `complain`."""
    for step in candidates.steps():
        if complete(candidates, step, shape, complain) is not None:
            return step
    return None


def complete(
    candidates: Candidates, step: int, shape: Shape, complain: Callable[[str], None]
) -> dict[tuple[int, int], str] | None:
    """Every node's and worker's hash at `step`, inferred ones included; None when something is missing."""
    known = {(node, worker): digest for (found, node, worker), digest in candidates.metas.items() if found == step}
    metas = infer(known, step, shape, complain)
    missing = False
    for node in range(shape.nodes):
        for worker in range(shape.workers):
            digest = metas.get((node, worker))
            if digest is None:
                complain(f"Step {step}, Node {node}, GPU {worker} meta is missing")
                missing = True
            elif digest not in candidates.data:
                complain(f"Step {step}, Node {node}, GPU {worker}, Hash {digest} data is missing")
                missing = True
    if missing:
        return None
    return {key: metas[key] for key in metas if key[0] < shape.nodes and key[1] < shape.workers}


def infer(
    known: Mapping[tuple[int, int], str], step: int, shape: Shape, complain: Callable[[str], None]
) -> dict[tuple[int, int], str]:
    """Adds what data parallelism implies: nodes in one column of the grid hold the same data.

    Row = node // (nodes / D), column = node % (nodes / D). Where the known metas of a column differ, nothing is
    inferred for it; where nodes is not divisible by D, nothing at all.
    """
    metas = dict(known)
    groups = shape.data_parallelism
    if not groups:
        return metas
    if shape.nodes % groups:
        complain(f"Number of Nodes {shape.nodes} is not divisible by {groups}")
        return metas
    width = shape.nodes // groups
    for column in range(width):
        nodes = range(column, shape.nodes, width)
        for worker in range(shape.workers):
            found = {metas[node, worker] for node in nodes if (node, worker) in metas}
            if not found:
                complain(f"Step {step}, Node {column}, GPU {worker}: all meta is missing")
            elif len(found) > 1:
                complain(f"Step {step}, column {column}, GPU {worker}: metas differ: {sorted(found)}")
            else:
                metas.update({(node, worker): next(iter(found)) for node in nodes})
    return metas
