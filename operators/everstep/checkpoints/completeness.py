"""Whether the replicator would restore a step from a set of metas and data: its own rule, not a stricter one.

A step is valid if every worker of every node has a meta and the data which that meta names is there. Under
``assume-data-parallelism: D`` missing metas are inferred first: nodes form a grid with ``nodes / D`` columns
(row = node // columns, column = node % columns), and nodes of a column hold equal data. A column in which
nothing is known is fatal, a column whose metas differ is not inferred but may still pass when none of its
metas is missing, and a number of nodes that D does not divide switches inference off. Step 0 is never
restorable (the coordinator tests the step's truth value), so a save at step 0 is as good as none.

Source: ``infer_missing_meta`` and ``validate_checkpoint`` of the public replicator's coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from everstep.checkpoints.names import data_name

Rank = tuple[int, int]
"""A node and a worker of it."""


@dataclass(frozen=True)
class Shape:
    """The shape of the job that would restore. A resized job changes the verdict, so it is always given.

    ``data_parallelism`` is the promise that state is replicated over so many groups of nodes; None: no
    promise.
    """

    nodes: int
    workers_per_node: int = 1
    data_parallelism: int | None = None

    def __post_init__(self) -> None:
        found = (self.nodes, self.workers_per_node, 1 if self.data_parallelism is None else self.data_parallelism)
        if min(found) < 1:
            raise ValueError(
                f"shape nodes={self.nodes} workers_per_node={self.workers_per_node} "
                f"data_parallelism={self.data_parallelism}: expected numbers of at least 1"
            )

    @property
    def columns(self) -> int | None:
        """Nodes per data-parallel group; None if nothing may be inferred."""
        if self.data_parallelism is None or self.nodes % self.data_parallelism:
            return None
        return self.nodes // self.data_parallelism


@dataclass(frozen=True)
class Validity:
    """Whether one step would be restored, why not, and what was noticed on the way."""

    step: int
    valid: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def validate(step: int, metas: Mapping[Rank, str], data: Collection[str], shape: Shape) -> Validity:
    """Judge one step.

    :param metas: digest (body of the meta) by node and worker, of this step only
    :param data: names ``<digest>.data`` that are there in full
    """
    if step == 0:
        return Validity(0, False, ("step 0 is never restored",))
    known, fatal, notes = infer_missing(metas, shape)
    reasons = list(fatal)
    for node in range(shape.nodes):
        for worker in range(shape.workers_per_node):
            digest = known.get((node, worker))
            if digest is None:
                if not fatal:
                    reasons.append(f"step {step}: meta of node {node} worker {worker} is missing")
            elif data_name(digest) not in data:
                reasons.append(f"step {step}: data {digest[:12]}… of node {node} worker {worker} is missing")
    return Validity(step, not reasons, tuple(reasons), tuple(notes))


def infer_missing(metas: Mapping[Rank, str], shape: Shape) -> tuple[dict[Rank, str], list[str], list[str]]:
    """Fill in metas that data parallelism implies. Returns all known metas, fatal findings and notes."""
    known = dict(metas)
    if shape.data_parallelism is None:
        return known, [], []
    if shape.columns is None:
        note = f"{shape.nodes} nodes are not divisible by data parallelism {shape.data_parallelism}: nothing inferred"
        return known, [], [note]
    fatal: list[str] = []
    notes: list[str] = []
    for column in range(shape.columns):
        nodes = range(column, shape.nodes, shape.columns)
        for worker in range(shape.workers_per_node):
            found = {known[node, worker] for node in nodes if (node, worker) in known}
            if not found:
                fatal.append(f"all metas of nodes {', '.join(map(str, nodes))} worker {worker} are missing")
            elif len(found) > 1:
                notes.append(f"metas of nodes {', '.join(map(str, nodes))} worker {worker} differ: not inferred")
            else:
                digest = next(iter(found))
                known.update({(node, worker): digest for node in nodes if (node, worker) not in known})
    return known, fatal, notes


def best_step(
    metas_by_step: Mapping[int, Mapping[Rank, str]], data: Collection[str], shape: Shape
) -> tuple[Validity | None, list[Validity]]:
    """The highest valid step of one directory (or of the RAM disks together), and what was judged, highest
    first.
    """
    judged: list[Validity] = []
    for step in sorted(metas_by_step, reverse=True):
        validity = validate(step, metas_by_step[step], data, shape)
        judged.append(validity)
        if validity.valid:
            return validity, judged
    return None, judged


def steps_of(metas: Iterable[tuple[int, int, int, str]]) -> dict[int, dict[Rank, str]]:
    """Group (step, node, worker, digest) by step."""
    grouped: dict[int, dict[Rank, str]] = {}
    for step, node, worker, digest in metas:
        grouped.setdefault(step, {})[node, worker] = digest
    return grouped
