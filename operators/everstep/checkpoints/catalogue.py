"""The catalogue of a run's backups: each dated directory with its state, its step and the reasons.

One backup costs one listing with the delimiter ``/``: metas come as objects, data directories as prefixes. A
state is what the replicator would make of the directory now; ``IN_FLIGHT`` and ``INCOMPLETE`` differ only in
whether more may still come.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from everstep.checkpoints import checksums, names
from everstep.checkpoints.completeness import Shape, best_step, steps_of
from everstep.checkpoints.names import MetaName

__all__ = ["Backup", "BackupListing", "BackupState", "Catalogue", "ListedObject", "Shape", "build", "read_listing"]


class BackupState(enum.StrEnum):
    COMPLETE = "complete"
    """The replicator would restore it."""
    IN_FLIGHT = "in flight"
    """Not complete, and young enough, or with copies not yet renamed, that it may become so."""
    INCOMPLETE = "incomplete"
    """Not complete, and nothing has come for longer than the grace time."""
    EMPTY = "empty"
    """The directory exists and holds nothing."""
    FOREIGN = "foreign"
    """Not a real minute, or nothing of this run inside."""


@dataclass(frozen=True)
class ListedObject:
    """One object of a listing; ``name`` is the last path part. ``created`` is the object's timeCreated. ``on_hold``:
    the bucket refuses to delete it until somebody releases it.

    Generation and metageneration are 0 where the listing did not tell them.
    """

    name: str
    size: int = 0
    md5: str | None = None
    crc32c: str | None = None
    created: datetime | None = None
    generation: int = 0
    metageneration: int = 0
    on_hold: bool = False


@dataclass(frozen=True)
class BackupListing:
    """What one dated directory holds.

    ``metas`` maps the names of meta objects to digests, or, where the digest is unknown, to ``"?<checksum>"``
    (then no finished data has that checksum). ``to_read`` names the metas whose bodies would settle that.
    """

    name: str
    metas: Mapping[str, str] = field(default_factory=dict)
    data: frozenset[str] = frozenset()
    in_flight: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    newest: datetime | None = None
    to_read: tuple[str, ...] = ()

    @cached_property
    def parsed(self) -> dict[str, MetaName]:
        """Return what the name of each meta says."""
        return {name: meta for name in self.metas if (meta := names.parse_meta(name)) is not None}


@dataclass(frozen=True)
class Backup:
    """One backup directory. ``step`` is the step that would be restored, or else the highest one present, if
    any.

    ``reasons`` say why it is not complete, or what is odd about a complete one. ``newest`` is the creation
    time of its newest object directly inside.
    """

    name: str
    time: datetime | None
    step: int | None
    state: BackupState
    reasons: tuple[str, ...] = ()
    newest: datetime | None = None


@dataclass(frozen=True)
class Catalogue:
    """A run's backups, newest first by name, as the replicator would consider them."""

    run: str
    shape: Shape
    backups: tuple[Backup, ...]

    def in_state(self, *states: BackupState) -> tuple[Backup, ...]:
        return tuple(backup for backup in self.backups if backup.state in states)

    @property
    def complete(self) -> tuple[Backup, ...]:
        return self.in_state(BackupState.COMPLETE)

    def named(self, name: str) -> Backup | None:
        return next((backup for backup in self.backups if backup.name == name), None)


def read_listing(
    name: str,
    objects: Iterable[ListedObject],
    prefixes: Iterable[str],
    *,
    bodies: Mapping[str, str] | None = None,
) -> BackupListing:
    """Turn one listing of a dated directory into a BackupListing.

    :param prefixes: last path parts of the sub-directories, with or without a trailing slash
    :param bodies: bodies of metas that an earlier pass named in ``to_read``
    """
    bodies = bodies or {}
    listed = list(objects)
    folders = {prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes} - {""}
    entries = folders | {item.name for item in listed if item.name}
    data = frozenset(entry for entry in entries if names.is_data_name(entry))
    # Without any MD5 (composite objects) by CRC32C, which is slow to compute.
    by_checksum = _digests_by_checksum(data, with_crc32c=any(item.md5 is None for item in listed))
    metas: dict[str, str] = {}
    to_read: list[str] = []
    for item in listed:
        if not names.is_meta_name(item.name) or item.name in folders:
            continue
        if item.name in bodies:
            metas[item.name] = bodies[item.name].strip()
            continue
        checksum = item.md5 or item.crc32c
        digest = by_checksum.get(checksum) if checksum else None
        metas[item.name] = digest or f"?{checksum or item.name}"
        if digest is None:
            to_read.append(item.name)
    in_flight = frozenset(entry for entry in entries if names.is_in_flight(entry))
    created = [item.created for item in listed if item.created is not None]
    return BackupListing(
        name=name,
        metas=metas,
        data=data,
        in_flight=in_flight,
        other=frozenset(entries - data - in_flight - metas.keys()),
        newest=max(created, default=None),
        to_read=tuple(sorted(to_read)),
    )


def build(run: str, listings: Iterable[BackupListing], shape: Shape, *, now: datetime, grace: timedelta) -> Catalogue:
    """Judge every dated directory of a run.

    :param listings: directories whose names the replicator's pattern takes for backups; others are left out
    :param now: the time of judging, aware
    :param grace: how long after its minute, or after its newest object, a directory may still become complete
    """
    taken = [listing for listing in listings if names.looks_like_backup(listing.name)]
    taken.sort(key=lambda listing: listing.name, reverse=True)
    return Catalogue(run, shape, tuple(_judge(run, listing, shape, now, grace) for listing in taken))


def _judge(run: str, listing: BackupListing, shape: Shape, now: datetime, grace: timedelta) -> Backup:
    minute = names.parse_backup_directory(listing.name)

    def backup(state: BackupState, step: int | None = None, reasons: Collection[str] = ()) -> Backup:
        return Backup(listing.name, minute, step, state, tuple(reasons), listing.newest)

    if minute is None:
        reason = f"{listing.name} is no real minute, though the replicator's pattern takes it for a backup"
        return backup(BackupState.FOREIGN, reasons=[reason])
    own = {name: meta for name, meta in listing.parsed.items() if meta.job == run}
    by_step = steps_of((meta.step, meta.node, meta.worker, listing.metas[name]) for name, meta in own.items())
    best, judged = best_step(by_step, listing.data, shape)
    if best is not None:
        return backup(BackupState.COMPLETE, best.step, best.notes)
    reasons = [reason for validity in judged for reason in validity.reasons + validity.notes]
    young = now - max(minute, listing.newest or minute) < grace
    if not own and not listing.data and not listing.in_flight:
        if not listing.metas and not listing.other:
            return backup(BackupState.IN_FLIGHT if young else BackupState.EMPTY, reasons=["nothing in it"])
        jobs = sorted({meta.job for meta in listing.parsed.values()})
        found = f"metas of {', '.join(jobs)}" if jobs else ", ".join(sorted(listing.other)[:3])
        return backup(BackupState.FOREIGN, reasons=[f"nothing of run {run} in it, but {found}"])
    if not own:
        jobs = sorted({meta.job for meta in listing.parsed.values()})
        if jobs:
            return backup(BackupState.FOREIGN, reasons=[f"no meta of run {run} in it, but of {', '.join(jobs)}"])
        reasons.append("data without any meta")
    if listing.in_flight:
        reasons.append(f"{len(listing.in_flight)} copies in flight")
    state = BackupState.IN_FLIGHT if young else BackupState.INCOMPLETE
    return backup(state, max(by_step, default=None), reasons)


def _digests_by_checksum(data: Collection[str], *, with_crc32c: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in data:
        digest = names.digest_of_data(name)
        if digest is not None:
            found[checksums.md5_base64(digest.encode())] = digest
            if with_crc32c:
                found[checksums.crc32c_base64(digest.encode())] = digest
    return found
