"""Checks that state is replicated as ``assume-data-parallelism`` promises to the replicator.

Under that promise only the last group of nodes backs up data. State that is in fact sharded over the groups would be
backed up in part, and the backup would still count as complete. So the shards that each node holds are compared with
those of the node at the same place in every other group, whatever the mesh's axes are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep_trainer.errors import ConfigurationError

SHOWN = 3


def check(state: Any, *, data_parallelism: int, rank_by_process: Sequence[int]) -> None:
    """Raise ConfigurationError if any leaf is not replicated over the data-parallel groups.

    :param state: arrays or abstract arrays with shardings
    :param rank_by_process: node rank of each process index
    """
    import jax

    if data_parallelism == 1:
        return
    wrong = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        column = differing_column(leaf.sharding, leaf.shape, data_parallelism, rank_by_process)
        if column is not None:
            nodes = ", ".join(map(str, column))
            wrong.append(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.sharding}: nodes {nodes} hold other shards")
    if wrong:
        shown = wrong[:SHOWN] + ([f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else [])
        raise ConfigurationError(
            f"state is not replicated over {data_parallelism} data-parallel groups, as EVERSTEP_DATA_PARALLELISM "
            "promises; backups would lack data. Replicate it over the slices, or set data parallelism to 1",
            *shown,
        )


def differing_column(
    sharding: Any, shape: tuple[int, ...], data_parallelism: int, rank_by_process: Sequence[int]
) -> list[int] | None:
    """Nodes that should hold equal shards but do not; None if all is well."""
    nodes = len(rank_by_process)
    columns = nodes // data_parallelism
    held: dict[int, set[str]] = {rank: set() for rank in rank_by_process}
    if len({device.process_index for device in sharding.device_set}) <= 1 and nodes > 1:
        # Local to each process: every node saves its own whole copy.
        return None
    for device, index in sharding.devices_indices_map(shape).items():
        held[rank_by_process[device.process_index]].add(str(index))
    for column in range(columns):
        same = list(range(column, nodes, columns))
        if any(held[rank] != held[same[0]] for rank in same):
            return same
    return None
