"""Orbax on top of the two places that a training process saves to: the RAM disk and the bucket.

Local saves use Orbax's own manager for multi-tier checkpointing, so that any tool that reads its checkpoints reads
these, and so that each step appears by one rename. Durable saves are plain Orbax checkpoints straight in the bucket,
which need neither the replicator nor this library to be read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from everstep_trainer.errors import ConfigurationError

_STATE = "state"


def prepare() -> list[int]:
    """What Orbax needs once after ``jax.distributed`` is up. Returns the node rank of each process index."""
    from absl import flags
    from orbax.checkpoint import multihost

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    multihost.initialize_runtime_to_distributed_ids()
    multihost.initialize_distributed_to_device_ids()
    return list(multihost.runtime_to_distributed_ids())


def abstract(state: Any) -> Any:
    """Shapes, types and shardings of a tree of arrays. Raises ConfigurationError for leaves that have none."""
    import jax

    wrong = [
        f"{jax.tree_util.keystr(path)} is a {type(leaf).__name__}"
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if getattr(leaf, "sharding", None) is None
    ]
    if wrong:
        raise ConfigurationError(
            "state must be a tree of jax.Array, or of jax.ShapeDtypeStruct with a sharding", *wrong[:5]
        )
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state)


class LocalStore:
    """Saves to and restores from the node's checkpoint directory. All hosts call each method alike."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._manager: Any = None

    def restore(self, marker: Path, step: int, like: Any) -> Any:
        """Restore through the replicator's marker, which is renamed to the bare step, as Orbax does."""
        import orbax.checkpoint as ocp
        from orbax.checkpoint import checkpoint_utils

        os.replace(marker, self._directory / str(step))
        manager = self._open(like)
        arguments = checkpoint_utils.construct_restore_args(like)
        restored = manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.PyTreeRestore(item=like, restore_args=arguments))
        )
        return restored[_STATE]

    def save(self, step: int, state: Any) -> None:
        """Save a step; when this returns it has appeared in the directory, or the replicator has taken it."""
        import orbax.checkpoint as ocp

        self._open(state).save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(state)), force=True)

    def _open(self, state: Any) -> Any:
        if self._manager is None:
            from etils import epath  # type: ignore[import-untyped]
            from orbax.checkpoint.experimental.emergency import replicator_checkpoint_manager as replicator

            self._manager = replicator.ReplicatorCheckpointManager(
                epath.Path(self._directory),
                replicator.ReplicatorCheckpointManagerOptions(save_interval_steps=1, enable_async_checkpointing=False),
                global_mesh=_mesh_of(state),
            )
        return self._manager


class DurableStore:
    """Saves to and restores from ``checkpoints/<step>`` of the run's folder. All hosts call each method alike."""

    def save(self, url: str, state: Any) -> None:
        """Save; when this returns the checkpoint is complete in the bucket. No object may be there yet."""
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            # Forced, since buckets with folders may still show an empty one of a save that was not finished.
            checkpointer.save(url, state, force=True)

    def restore(self, url: str, like: Any) -> Any:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(url, like)


def _mesh_of(state: Any) -> Any:
    import jax

    meshes = {
        leaf.sharding.mesh for leaf in jax.tree.leaves(state) if isinstance(leaf.sharding, jax.sharding.NamedSharding)
    }
    if len(meshes) != 1:
        raise ConfigurationError(
            f"state uses {len(meshes)} meshes, expected one: give every array a NamedSharding over the same mesh"
        )
    return next(iter(meshes))
