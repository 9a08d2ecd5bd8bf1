"""The content of ``replicator.yaml``, checked before the replicator sees it.

The replicator reads it with a YAML parser, expands environment variables in strings and turns strings of
digits into integers; it logs impossible combinations and goes on, which costs data. So everything it would
trip over is refused here. Source: the public replicator's configuration and Orbax's multi-tier
initialisation.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from everstep_trainer.errors import ConfigurationError

_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_WORDS_YAML_READS_AS_VALUES = frozenset({"on", "off", "yes", "no", "true", "false", "null", "y", "n"})


@dataclass(frozen=True)
class ReplicatorConfig:
    """One node's configuration. Raises ConfigurationError with all findings when it is made."""

    job_name: str
    framework: str
    node_rank: int
    nodes: int
    peer_ranks: tuple[int, ...]
    backup_interval_minutes: float
    data_parallelism: int | None = None
    workers_per_node: int = 1

    def __post_init__(self) -> None:
        findings = list(self._findings())
        if findings:
            raise ConfigurationError(*(f"replicator.yaml: {finding}" for finding in findings))

    def _findings(self) -> list[str]:
        found = []
        if not _JOB_NAME.fullmatch(self.job_name) or self.job_name in _WORDS_YAML_READS_AS_VALUES:
            found.append(
                f"job-name {self.job_name!r} is a folder, a pattern and a YAML scalar at once: expected small "
                "letters, digits and '-', starting with a letter, and no YAML word such as 'on'"
            )
        if self.framework not in ("orbax", "pytorch.distributed", "pytorch"):
            found.append(f"framework {self.framework!r}: expected orbax, pytorch.distributed or pytorch")
        if self.nodes < 1 or not 0 <= self.node_rank < self.nodes:
            found.append(f"node-rank {self.node_rank} with nodes {self.nodes}: expected 0 <= node-rank < nodes")
        wrong = [rank for rank in self.peer_ranks if not 0 <= rank < self.nodes or rank == self.node_rank]
        if wrong or len(set(self.peer_ranks)) != len(self.peer_ranks):
            found.append(
                f"peer-ranks {list(self.peer_ranks)} of node {self.node_rank} of {self.nodes}: expected different "
                "ranks of other nodes"
            )
        parallelism = self.data_parallelism
        if parallelism is not None and (parallelism < 1 or self.nodes % parallelism):
            found.append(
                f"assume-data-parallelism {parallelism} does not divide nodes {self.nodes}: the replicator would only "
                "log it and back up part of the data"
            )
        if not self.backup_interval_minutes > 0:
            found.append(f"backup-interval-minutes {self.backup_interval_minutes}: expected a number above 0")
        if self.workers_per_node < 1:
            found.append(f"workers-per-node {self.workers_per_node}: expected at least 1")
        return found

    def to_yaml(self) -> str:
        """The file's text. Strings are quoted as JSON, which YAML reads alike, so no name turns into a
        number.
        """
        interval = self.backup_interval_minutes
        lines = [
            f"job-name: {json.dumps(self.job_name)}",
            f"framework: {json.dumps(self.framework)}",
            *([] if self.data_parallelism is None else [f"assume-data-parallelism: {self.data_parallelism}"]),
            f"node-rank: {self.node_rank}",
            f"nodes: {self.nodes}",
            f"workers-per-node: {self.workers_per_node}",
            f"peer-ranks: {list(self.peer_ranks)}",
            f"backup-interval-minutes: {int(interval) if interval == int(interval) else interval}",
        ]
        return "\n".join(lines) + "\n"


def peers_of(rank: int, *, slices: int, nodes_per_slice: int) -> tuple[int, ...]:
    """The nodes at the same place in every other slice; ranks are numbered slice by slice."""
    if rank >= slices * nodes_per_slice:
        return ()
    place = rank % nodes_per_slice
    return tuple(other for other in range(place, slices * nodes_per_slice, nodes_per_slice) if other != rank)
