"""The last known good checkpoint (LKG): what a run would be restored from.

Backups count by date, newest first, because the replicator restores the newest complete date and not the
highest step; a durable save is taken instead where its step is higher, because the trainer does so. Step 0
never counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from everstep.checkpoints.catalogue import Catalogue
from everstep.checkpoints.layout import DURABLE

Tier = Literal["backup", "durable"]


@dataclass(frozen=True)
class LastKnownGood:
    """A restorable checkpoint that outlives the nodes.

    ``name`` is the backup's directory or ``checkpoints/<step>``. ``shadowed_by`` names complete backups that
    are newer but above the bound or quarantined: the replicator would restore the first of them until it is
    renamed.
    """

    step: int
    tier: Tier
    name: str
    shadowed_by: tuple[str, ...] = ()


def select(
    catalogue: Catalogue,
    durable_steps: Iterable[int],
    *,
    bound_step: int | None = None,
    quarantined: Collection[str] = (),
) -> LastKnownGood | None:
    """Choose the LKG; None if nothing complete is left.

    :param durable_steps: steps of complete durable saves (their commit marker was listed)
    :param bound_step: highest step that the live lineage may restore
    :param quarantined: backup names and ``checkpoints/<step>`` names that must not be restored
    """
    backup, shadowing = _newest_backup(catalogue, bound_step, quarantined)
    durable = max(
        (step for step in durable_steps if _allowed(step, durable_name(step), bound_step, quarantined)), default=None
    )
    if durable is not None and (backup is None or durable > backup.step):
        return LastKnownGood(durable, "durable", durable_name(durable), shadowing)
    return backup


def durable_name(step: int) -> str:
    """The name under which a durable save is quarantined and shown: its path below the run's folder."""
    return f"{DURABLE}/{step}"


def _newest_backup(
    catalogue: Catalogue, bound_step: int | None, quarantined: Collection[str]
) -> tuple[LastKnownGood | None, tuple[str, ...]]:
    shadowing: list[str] = []
    for backup in catalogue.complete:
        if backup.step is None:
            continue
        if _allowed(backup.step, backup.name, bound_step, quarantined):
            return LastKnownGood(backup.step, "backup", backup.name, tuple(shadowing)), tuple(shadowing)
        shadowing.append(backup.name)
    return None, tuple(shadowing)


def _allowed(step: int, name: str, bound_step: int | None, quarantined: Collection[str]) -> bool:
    return step > 0 and (bound_step is None or step <= bound_step) and name not in quarantined
