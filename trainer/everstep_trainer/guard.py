"""Decides what a run starts from, and refuses what would lose progress. Pure: what was found is passed in.

Node rank 0 decides for all hosts, since listings may differ from one moment to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everstep.checkpoints.last_known_good import LastKnownGood
from everstep_trainer.errors import NoRestorePoint, StartRefused
from everstep_trainer.run_record import RunRecord

_SAVED = {"last_durable_save": "durably", "last_local_save": "to the RAM disks"}


@dataclass(frozen=True)
class Offer:
    """What the replicator offers: a step and, where it came from a backup, its name. None: nothing."""

    step: int | None
    backup: str | None = None


@dataclass(frozen=True)
class History:
    """What the bucket says of the run's past.

    ``known_good``: the newest complete backup or durable save within bound and quarantine; only looked for where it
    may matter. ``durable_step``: newest durable save within bound and quarantine. ``traces``: backup directories and
    durable saves that are there, whole or not. ``status``: the content of status.json
    as the last attempt left it.
    """

    known_good: LastKnownGood | None = None
    durable_step: int | None = None
    traces: tuple[str, ...] = ()
    status: dict[str, Any] | None = None


@dataclass(frozen=True)
class Start:
    """What all hosts start from. ``source``: ``replicator``, ``durable`` or ``fresh``."""

    source: str
    step: int | None
    reason: str


def decide(record: RunRecord, offer: Offer, history: History) -> Start:
    """Choose the source of the start.

    :raises StartRefused: if the offer is above the bound or quarantined, or if a checkpoint exists that is not offered
    :raises NoRestorePoint: if progress was saved and nothing of it can be restored
    """
    bound = record.bound_step
    durable = history.durable_step
    if offer.step is not None:
        _refuse_forbidden(record, offer, offer.step)
        if durable is not None and durable > offer.step:
            return Start("durable", durable, f"the durable save is newer than step {offer.step} of the replicator")
        return Start("replicator", offer.step, "offered by the replicator")
    if durable is not None:
        return Start("durable", durable, "the replicator has nothing to restore")
    if record.allow_fresh_start:
        return Start("fresh", None, "the run allows a fresh start")
    if history.known_good is not None:
        found = history.known_good
        raise StartRefused(
            f"{found.tier} {found.name} holds step {found.step}, but the replicator found nothing to restore: starting "
            "afresh would lose it. Check the shape of the run and the bucket of its checkpoint configuration, or set "
            "allow_fresh_start"
        )
    progress = _saved_progress(record, history)
    if progress is not None:
        within = "" if bound is None else f" at or below step {bound}"
        raise NoRestorePoint(
            f"{progress}, but nothing complete{within} can be restored from RAM disks, backups or durable saves. Set "
            "allow_fresh_start to start again from nothing"
        )
    return Start("fresh", None, "nothing was ever saved")


def carried_over(record: RunRecord, status: dict[str, Any] | None) -> dict[str, int]:
    """What a new attempt's reports repeat of the last one's, so that an attempt which dies before it restores does not
    wipe out the knowledge that progress was saved."""
    if status is None or not _of_lineage(record, status):
        return {}
    return {key: status[key] for key in _SAVED if isinstance(status.get(key), int)}


def _refuse_forbidden(record: RunRecord, offer: Offer, step: int) -> None:
    if record.bound_step is not None and step > record.bound_step:
        raise StartRefused(
            f"the replicator restored step {step}, above the lineage's bound {record.bound_step}: a RAM disk or a "
            "later backup of the abandoned lineage is still there; resume the run again so that it is cleared"
        )
    if offer.backup is not None and offer.backup in record.quarantined:
        raise StartRefused(
            f"the replicator restored backup {offer.backup}, which is quarantined: rename it out of the dated pattern"
        )


def _saved_progress(record: RunRecord, history: History) -> str | None:
    """The trace of progress, in words; None if there is none. Status of another lineage does not count."""
    for key, step in carried_over(record, history.status).items():
        return f"the run saved step {step} {_SAVED[key]}"
    if history.traces:
        return f"the bucket holds {', '.join(history.traces[:3])}"
    return None


def _of_lineage(record: RunRecord, status: dict[str, Any]) -> bool:
    return not record.known or status.get("lineage") == record.lineage
