"""Reads from the bucket what the guard needs to know of a run's past, with as few requests as it takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.checkpoints import catalogue, last_known_good, names
from everstep.checkpoints.catalogue import BackupListing, Shape
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep_trainer import durable_saves
from everstep_trainer.bucket import Bucket
from everstep_trainer.guard import History, Offer
from everstep_trainer.run_record import RunRecord


def read_history(
    bucket: Bucket,
    folder: RunFolder,
    shape: Shape,
    record: RunRecord,
    offer: Offer,
    status: dict[str, Any] | None,
) -> History:
    """Look at the run's folder.

    Always finds the newest durable save above the offer; backups are looked into only when nothing was offered.

    :param status: the last attempt's status.json, read before this attempt wrote its own
    """
    above = offer.step or 0
    top = bucket.list_level(folder.prefix)
    durable = durable_saves.newest(bucket, folder, record, above=above) if DURABLE in top.folders else None
    if offer.step is not None:
        return History(durable_step=durable)
    dated = [name for name in top.folders if names.looks_like_backup(name)]
    listings = [read_backup(bucket, folder, name) for name in dated]
    found = catalogue.build(folder.run, listings, shape, now=datetime.now(UTC), grace=timedelta())
    known_good = last_known_good.select(
        found,
        [] if durable is None else [durable],
        bound_step=record.bound_step,
        quarantined=record.quarantined,
    )
    traces = [backup.name for backup in found.backups if backup.state is not catalogue.BackupState.FOREIGN]
    return History(known_good, durable, tuple(traces), status)


def read_backup(bucket: Bucket, folder: RunFolder, name: str) -> BackupListing:
    """List one backup directory; metas that its checksums do not settle are read."""
    level = bucket.list_level(folder.backup_prefix(name))
    listing = catalogue.read_listing(name, level.objects, level.folders)
    if not listing.to_read:
        return listing
    bodies = {}
    for meta in listing.to_read:
        stored = bucket.read(folder.backup_prefix(name) + meta)
        if stored is not None:
            bodies[meta] = stored.content.decode("ascii", errors="replace")
    return catalogue.read_listing(name, level.objects, level.folders, bodies=bodies)


def read_status(bucket: Bucket, folder: RunFolder) -> dict[str, Any] | None:
    """The content of status.json; None if it is not there or not a JSON object."""
    stored = bucket.read(folder.status)
    if stored is None:
        return None
    try:
        status = json.loads(stored.content)
    except ValueError:
        return None
    return status if isinstance(status, dict) else None
