"""Reading a run's folder for a plan, with as few requests as it takes. Returns steps for `BucketClient.run`.

One request lists the run's folder; each backup costs one listing of its own level (a page holds 1,000 entries), each
save one. Metas are matched to data by checksum and not read. What has settled and was judged before is taken from what
is remembered, but for what a plan protects: that is judged anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from everstep.checkpoints import catalogue as catalogues
from everstep.checkpoints import completeness, names
from everstep.checkpoints.catalogue import BackupListing, BackupState, ListedObject
from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.layout import DURABLE, RESERVED, RunFolder
from everstep.clients.requests import (
    Listing,
    ListRequest,
    ReadRequest,
    Request,
    SizeRequest,
    Steps,
    listing,
    sizes,
    stored,
)
from everstep.retain import leftovers, records, remembered, saves_reading
from everstep.retain.inventory import FoundBackup, Inventory
from everstep.retain.levels import batches, contents_of, together
from everstep.retain.plan import RetentionRefused
from everstep.retain.remembered import Memory
from everstep.spec.findings import error

DIGEST_SIZES = (64, 65)
KEEP_COMPLETE = 2
SKEW = timedelta(minutes=5)


def read(
    folder: RunFolder,
    *,
    now: datetime,
    shape: Shape | None = None,
    keep_complete: int = KEEP_COMPLETE,
    grace: timedelta = timedelta(hours=24),
    skew: timedelta = SKEW,
    metric: str | None = None,
    use_memory: bool = True,
) -> Steps[Inventory]:
    """Read a run's folder. Raises RetentionRefused when there is none, or its records can't be understood.

    :param shape: where run.json does not tell it
    :param keep_complete: so many newest complete backups are judged anew, in all and of the live lineage
    :param grace: how long a backup may still become complete after its last object
    :param skew: a name may lie so far in the future and is not taken to be from there
    :param metric: to be read from saves, for a policy that keeps the best
    """
    first = yield [
        ListRequest(folder.prefix),
        ReadRequest(folder.run_record),
        ReadRequest(folder.restore_version),
        ReadRequest(records.pins_object(folder)),
        ReadRequest(remembered.object_name(folder)),
    ]
    level = listing(first[0])
    record, forced, pins, verdicts = (stored(answer) for answer in first[1:])
    if not level.objects and not level.folders:
        raise RetentionRefused(
            "there is nothing to plan for", [error(folder.url(), "no such folder", "a run's folder", "check the name")]
        )
    run_record = records.parse_run_record(folder, record.body if record else None)
    shape = records.shape_of(folder, run_record, shape)
    memory = remembered.read(verdicts.body if verdicts and use_memory else None, folder, shape, metric)
    dated = sorted((name for name in level.folders if names.looks_like_backup(name)), reverse=True)
    base = Inventory(
        folder,
        shape,
        shape_is_told=records.told_shape(run_record) is not None,
        forced_restore=forced.body.decode(errors="replace").strip() if forced else None,
        forced_generation=forced.generation if forced else 0,
        run_record=run_record,
        run_record_generation=record.generation if record else 0,
        pins=records.parse_pins(folder, pins.body, now) if pins else {},
        pins_generation=pins.generation if pins else 0,
        memory=verdicts.body if verdicts else b"",
        memory_generation=verdicts.generation if verdicts else 0,
    )
    backups = yield from _backups(base, dated, memory, now, grace, skew, keep_complete)
    found_saves, temporary = (
        (yield from saves_reading.read(base, memory, metric, keep_complete)) if DURABLE in level.folders else ([], [])
    )
    others = [name for name in level.folders if name not in RESERVED and not names.looks_like_backup(name)]
    left, unknown = yield from leftovers.read(folder, others, temporary, memory, now)
    sample = yield from _sample(folder, backups, memory)
    return replace(
        base,
        backups=tuple(backups),
        saves=tuple(found_saves),
        leftovers=tuple(left),
        unknown=tuple(unknown),
        objects_per_folder=sample[0],
        bytes_per_folder=sample[1],
        first_seen={each.name: memory.first_seen.get(each.name, now) for each in left},
    )


def measure(found: Inventory, wanted: Iterable[str]) -> Steps[Inventory]:
    """Count what lies in some backups, saves and leftovers in full: one request for each 1,000 objects."""
    wanted = list(wanted)
    measured: dict[str, tuple[int, int]] = {}
    for batch in batches(wanted):
        answers = yield [SizeRequest(f"{found.folder.prefix}{name}/") for name in batch]
        for name, answer in zip(batch, answers, strict=True):
            size = sizes(answer)
            measured[name] = (size.objects, size.bytes)
    return replace(found, measured=measured)


def _judged(base: Inventory, level: Listing, read: BackupListing, now: datetime, grace: timedelta) -> FoundBackup:
    backup = catalogues.build(base.folder.run, [read], base.shape, now=now, grace=grace).backups[0]
    other = None if backup.state is BackupState.COMPLETE else _other_shape(base.folder.run, read, base.shape)
    data_folder = next((name for name in level.folders if names.is_data_name(name)), None)
    return FoundBackup(backup, contents_of(level), other, data_folder, ranks=_ranks(base.folder.run, read))


def _ranks(run: str, read: BackupListing) -> tuple[int, int]:
    """Return of how many nodes and workers a backup has metas, as their numbers tell."""
    metas = [meta for meta in read.parsed.values() if meta.job == run]
    return max((meta.node + 1 for meta in metas), default=0), max((meta.worker + 1 for meta in metas), default=0)


def _metas_to_read(read: BackupListing, level: Listing) -> list[str]:
    """Return the metas whose checksum tells nothing: there is none, or the body is more than a digest.

    A body as long as a digest whose checksum no data has names data that is not there.
    """
    if not read.to_read or not read.data:
        return []
    by_name = {item.name: item for item in level.objects}
    return [meta for meta in read.to_read if not _tells(by_name[meta])]


def _tells(meta: ListedObject) -> bool:
    return bool(meta.md5 or meta.crc32c) and meta.size in DIGEST_SIZES


def _backups(
    base: Inventory,
    dated: Sequence[str],
    memory: Memory,
    now: datetime,
    grace: timedelta,
    skew: timedelta,
    keep_complete: int,
) -> Steps[list[FoundBackup]]:
    past = [name for name in dated if (time := names.parse_backup_directory(name)) is not None and time <= now + skew]
    always = {*dated[:1], *past[:1], base.forced_restore, *base.pins}
    found: dict[str, FoundBackup] = {
        name: memory.backups[name] for name in dated if name in memory.backups and name not in always
    }
    # A meta of each worker, and a data folder of each that holds a part of the state of its own.
    workers = base.shape.nodes * base.shape.workers_per_node
    size = together(workers + workers // (base.shape.data_parallelism or 1))
    for batch in batches([name for name in dated if name not in found], size):
        found |= yield from _listed(base, batch, now, grace)
    while stale := _to_validate(base, [found[name] for name in dated], now + skew, keep_complete):
        found |= yield from _listed(base, stale[:size], now, grace)
    return [found[name] for name in dated]


def _to_validate(base: Inventory, newest_first: Sequence[FoundBackup], latest: datetime, count: int) -> list[str]:
    """Return the newest complete backups that are only remembered, among those that a plan protects."""
    complete = [each for each in newest_first if each.is_complete]
    past = [each for each in complete if each.backup.time is not None and each.backup.time <= latest]
    live = [[each for each in group if base.is_live(each.name, each.backup.step)] for group in (complete, past)]
    wanted = {each.name: each for group in (complete, past, *live) for each in group[:count]}
    return [name for name, each in wanted.items() if not each.is_fresh]


def _listed(base: Inventory, batch: Sequence[str], now: datetime, grace: timedelta) -> Steps[dict[str, FoundBackup]]:
    answers = yield [ListRequest(base.folder.backup_prefix(name)) for name in batch]
    levels = dict(zip(batch, map(listing, answers), strict=True))
    read = {name: catalogues.read_listing(name, level.objects, level.folders) for name, level in levels.items()}
    to_read = [(name, meta) for name in batch for meta in _metas_to_read(read[name], levels[name])]
    bodies: dict[str, dict[str, str]] = {}
    if to_read:
        requests: list[Request] = [ReadRequest(base.folder.backup_prefix(name) + meta) for name, meta in to_read]
        for (name, meta), answer in zip(to_read, (yield requests), strict=True):
            body = stored(answer)
            if body is not None:
                bodies.setdefault(name, {})[meta] = body.body.decode(errors="replace")
    for name, found in bodies.items():
        read[name] = catalogues.read_listing(name, levels[name].objects, levels[name].folders, bodies=found)
    return {name: _judged(base, level, read[name], now, grace) for name, level in levels.items()}


def _other_shape(run: str, read: BackupListing, shape: Shape) -> Shape | None:
    """A run that was resized has backups that are whole for as many nodes as they have metas of."""
    by_step = completeness.steps_of(
        (meta.step, meta.node, meta.worker, read.metas[name]) for name, meta in read.parsed.items() if meta.job == run
    )
    for step in sorted(by_step, reverse=True):
        nodes, workers = (max(rank[part] for rank in by_step[step]) + 1 for part in (0, 1))
        other = Shape(nodes, workers)
        is_whole = nodes * workers == len(by_step[step]) and other != replace(shape, data_parallelism=None)
        if is_whole and completeness.validate(step, by_step[step], read.data, other).valid:
            return other
    return None


def _sample(folder: RunFolder, backups: Sequence[FoundBackup], memory: Memory) -> Steps[tuple[int | None, int | None]]:
    """Count one data folder of the newest complete backup, so that sizes can be estimated."""
    if memory.bytes_per_folder is not None:
        return memory.objects_per_folder, memory.bytes_per_folder
    newest = next((each for each in backups if each.is_complete and each.data_folder), None)
    if newest is None:
        return None, None
    size = sizes((yield [SizeRequest(f"{folder.backup_prefix(newest.name)}{newest.data_folder}/")])[0])
    return size.objects, size.bytes
