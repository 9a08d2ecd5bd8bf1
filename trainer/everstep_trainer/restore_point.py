"""What the replicator offers to restore: which step, and which tier it came from."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from everstep.checkpoints import local_tier, names
from everstep.checkpoints.local_tier import MarkerState
from everstep_trainer import checkpoint_directory
from everstep_trainer.errors import HandshakeFailed


@dataclass(frozen=True)
class RestorePoint:
    """One node's offer. ``step`` None: nothing to restore. ``tier``: local, peer, backup or fresh.

    ``marker`` is the entry through which the data is reached; ``backup`` the dated directory that it came
    from.
    """

    step: int | None
    tier: str
    marker: Path | None = None
    backup: str | None = None
    foreign: tuple[str, ...] = ()


def discover(directory: Path, job: str, data_before: Collection[str]) -> RestorePoint | None:
    """Read the markers; None as long as the replicator has not put one there.

    :param data_before: names of data that were on the node before the handshake; other data came from a peer
    :raises HandshakeFailed: if the marker points at data that is not there
    """
    tier = local_tier.read(checkpoint_directory.entries(directory), job=job)
    marker = tier.decided
    if marker is None or marker.state is MarkerState.CONSUMED:
        return None
    if marker.state is MarkerState.FRESH:
        return RestorePoint(None, "fresh", foreign=tier.foreign)
    path = directory / marker.name
    if marker.state is MarkerState.DANGLING:
        raise HandshakeFailed(
            f"{path}: points at {os.readlink(path)}, which is not there; the replicator offered step {marker.step} "
            "without its data, so restart the attempt"
        )
    backup = restored_backup(directory)
    if backup is not None:
        return RestorePoint(marker.step, "backup", path, backup, tier.foreign)
    on_node = Path(os.readlink(path)).name in data_before
    return RestorePoint(marker.step, "local" if on_node else "peer", path, None, tier.foreign)


def restored_backup(directory: Path) -> str | None:
    """The backup named in ``replicator.prerestore``; None if it names none or is not there."""
    backup = _prerestore(directory).get("restore-backup")
    return backup if isinstance(backup, str) and names.looks_like_backup(backup) else None


def promised_step(directory: Path) -> int | None:
    """The step named in ``replicator.prerestore``; None if it names none, which means a fresh start."""
    step = _prerestore(directory).get("restore-step")
    return step if isinstance(step, int) else None


def _prerestore(directory: Path) -> dict[str, object]:
    import yaml

    text = checkpoint_directory.read_text(directory / checkpoint_directory.PRERESTORE)
    content = yaml.safe_load(text) if text else None
    return content if isinstance(content, dict) else {}
