"""`replicator.yaml`: what a training job asks of the replicator."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import yaml

ORBAX = "orbax"
PYTORCH = "pytorch"
PYTORCH_DISTRIBUTED = "pytorch.distributed"


class ConfigError(Exception):
    """A file that the replicator can't work with; it ends with `replicator.failed`."""


@dataclass(frozen=True)
class Config:
    """The job's wishes. `peers`: ranks whose checkpoints this node copies. `data_parallelism` None: not assumed."""

    job: str
    framework: str
    rank: int
    nodes: int
    peers: tuple[int, ...]
    workers: int
    port: int
    data_parallelism: int | None
    backup_interval_minutes: float | None

    @property
    def uploads_data(self) -> bool:
        """With data parallelism only the last group of nodes uploads data; all others upload metas only."""
        if self.data_parallelism is None:
            return True
        return self.rank >= self.nodes - self.nodes // self.data_parallelism


def parse(text: str) -> Config:
    """Raises ConfigError naming the key. Digits in strings become numbers, $VARIABLES are expanded."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ConfigError(f"The file is not YAML: {problem}") from problem
    if not isinstance(read, dict):
        raise ConfigError(f"Expected keys and values, found {type(read).__name__}.")
    values = {str(key): _expanded(value) for key, value in read.items()}
    try:
        framework = values["framework"]
        rank, nodes = int(values["node-rank"]), int(values["nodes"])
        if "peers-per-node" not in values:
            values["peers-per-node"] = len(values["peer-ranks"])
        peers = values.get("peer-ranks")
        if peers is None:
            peers = [(rank + 1 + offset) % nodes for offset in range(int(values["peers-per-node"]))]
        parallelism = values.get("assume-data-parallelism")
        interval = values.get("backup-interval-minutes")
        config = Config(
            job=str(values["job-name"]),
            framework=str(framework),
            rank=rank,
            nodes=nodes,
            peers=tuple(int(peer) for peer in peers),
            workers=int(values.get("workers-per-node", 1)),
            port=int(values.get("master-port", 4242)),
            data_parallelism=int(parallelism) if parallelism is not None else None,
            backup_interval_minutes=float(interval) if interval is not None else None,
        )
    except KeyError as missing:
        raise ConfigError(f"Key {missing} is missing.") from missing
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"A value has the wrong kind: {problem}") from problem
    if config.framework not in (ORBAX, PYTORCH, PYTORCH_DISTRIBUTED):
        raise ConfigError(f"Unknown framework '{framework}': expected {ORBAX}, {PYTORCH_DISTRIBUTED} or {PYTORCH}.")
    return config


def _expanded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    return int(expanded) if expanded.isdigit() else expanded
