"""Reading a run's folder: backups and durable saves, and Everstep's own records.

Each function returns steps for `BucketClient.run` or `AsyncBucketClient.run`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.checkpoints import catalogue as catalogues
from everstep.checkpoints import last_known_good, names, saves
from everstep.checkpoints.catalogue import BackupListing, Catalogue, Shape
from everstep.checkpoints.last_known_good import LastKnownGood
from everstep.checkpoints.layout import DURABLE, HIERARCHY_TEST, RECORDS, RESTORE_VERSION, RunFolder
from everstep.checkpoints.saves import SaveState
from everstep.clients.requests import ListRequest, ReadRequest, Request, Steps, listing, stored

# How long after its last object a backup may still be on its way.
GRACE = timedelta(minutes=30)
# Backups that are judged together while looking for the newest complete one.
BATCH = 4

Document = dict[str, Any]


@dataclass(frozen=True)
class RunContents:
    """What a run's folder holds.

    `durable_steps` are those of complete plain saves, Orbax's and PyTorch DCP's, each by its own rule. `forced` is the
    backup that `restore.version` names, if any. `unjudged` names the older dated directories that were not looked into,
    because a newer one was complete.
    """

    folder: RunFolder
    catalogue: Catalogue
    durable_steps: tuple[int, ...] = ()
    incomplete_durable_steps: tuple[int, ...] = ()
    forced: str | None = None
    unjudged: tuple[str, ...] = ()
    hierarchy_test_left: bool = False
    records: dict[str, Document] = field(default_factory=dict)

    @property
    def run_record(self) -> Document | None:
        """Return run.json, None when there is none."""
        return self.records.get("run.json")

    @property
    def status(self) -> Document | None:
        """Return status.json, None when there is none."""
        return self.records.get("status.json")

    @property
    def lease(self) -> Document | None:
        """Return lease.json, None when there is none."""
        return self.records.get("lease.json")

    @property
    def last_known_good(self) -> LastKnownGood | None:
        """Return what would be restored, within the bound and without the quarantined of run.json."""
        record = self.run_record or {}
        return last_known_good.select(
            self.catalogue,
            self.durable_steps,
            bound_step=record.get("bound_step"),
            quarantined=record.get("quarantined") or (),
        )

    @property
    def is_empty(self) -> bool:
        """Say whether nothing of a training is there: no backup, complete or not, and no durable save."""
        return not (self.catalogue.backups or self.durable_steps or self.incomplete_durable_steps)


def contents(
    folder: RunFolder, shape: Shape, *, everything: bool = True, now: datetime | None = None, grace: timedelta = GRACE
) -> Steps[RunContents]:
    """Read a run's folder: one request for the folder, one per backup, one per durable step, one per record.

    :param everything: False stops at the newest complete backup, which is enough for the last known good
    """
    level = listing((yield [ListRequest(folder.prefix)])[0])
    dated = sorted((name for name in level.folders if names.looks_like_backup(name)), reverse=True)
    present = {item.name for item in level.objects}
    listings: list[BackupListing] = []
    catalogue = Catalogue(folder.run, shape, ())
    taken = 0
    while taken < len(dated) and (everything or not catalogue.complete):
        batch = dated[taken:] if everything else dated[taken : taken + BATCH]
        taken += len(batch)
        listings += yield from _backups(folder, batch)
        catalogue = catalogues.build(folder.run, listings, shape, now=now or datetime.now(UTC), grace=grace)
    complete, incomplete = (yield from _durable(folder)) if DURABLE in level.folders else ((), ())
    records = (yield from _records(folder)) if RECORDS in level.folders else {}
    forced = None
    if RESTORE_VERSION in present:
        found = stored((yield [ReadRequest(folder.restore_version)])[0])
        forced = found.body.decode(errors="replace").strip() if found else None
    return RunContents(
        folder,
        catalogue,
        complete,
        incomplete,
        forced,
        tuple(dated[taken:]),
        HIERARCHY_TEST in level.folders,
        records,
    )


def records(folder: RunFolder) -> Steps[dict[str, Document]]:
    """Read run.json, status.json and lease.json: those that there are, by name."""
    return (yield from _records(folder))


def progress(folder: RunFolder, *, with_run_record: bool) -> Steps[dict[str, Document]]:
    """Read status.json, and run.json if asked for: those that there are, by name."""
    wanted = [folder.status, *([folder.run_record] if with_run_record else [])]
    return (yield from _named_documents(wanted))


def attempt(
    folder: RunFolder, launch: int, restart: int, restored: dict[str, Document] | None = None
) -> Steps[list[Document]]:
    """Read the reports of all nodes of one attempt, in order of rank.

    :param restored: what an earlier reading of this attempt found of nodes that had restored, by object name: these
        are not read again. Reports of nodes that have restored since are added
    """
    prefix = folder.attempt_prefix(launch, restart)
    level = listing((yield [ListRequest(prefix)])[0])
    known = {} if restored is None else restored
    present = [prefix + item.name for item in level.objects if item.name.endswith(".json")]
    found = yield from _named_documents([name for name in present if name not in known], whole_names=True)
    if restored is not None:
        restored.update((name, report) for name, report in found.items() if report.get("restored_tier"))
    found |= {name: known[name] for name in present if name in known}
    return sorted(found.values(), key=lambda report: int(report.get("rank", 0)))


def attempts(folder: RunFolder, since_launch: int = 0) -> Steps[dict[tuple[int, int], list[Document]]]:
    """Read the reports of all attempts from a launch on, by launch and restart."""
    level = listing((yield [ListRequest(folder.attempts_prefix)])[0])
    found: dict[tuple[int, int], list[Document]] = {}
    for key in sorted(_attempt_keys(level.folders)):
        if key[0] >= since_launch:
            found[key] = yield from attempt(folder, *key)
    return found


def _attempt_keys(folders: Sequence[str]) -> Iterator[tuple[int, int]]:
    for name in folders:
        launch, dash, restart = name.partition("-")
        if dash and launch.isdecimal() and restart.isdecimal():
            yield int(launch), int(restart)


def _backups(folder: RunFolder, dated: Sequence[str]) -> Steps[list[BackupListing]]:
    levels = [listing(answer) for answer in (yield [ListRequest(folder.backup_prefix(name)) for name in dated])]
    listings = []
    for name, level in zip(dated, levels, strict=True):
        read = catalogues.read_listing(name, level.objects, level.folders)
        # A checksum that no data name has: usually the data is not there (yet), else the meta names it otherwise.
        if read.to_read and read.data:
            requests: list[Request] = [ReadRequest(folder.backup_prefix(name) + meta) for meta in read.to_read]
            bodies = {}
            for meta, answer in zip(read.to_read, (yield requests), strict=True):
                found = stored(answer)
                if found is not None:
                    bodies[meta] = found.body.decode(errors="replace")
            read = catalogues.read_listing(name, level.objects, level.folders, bodies=bodies)
        listings.append(read)
    return listings


def _durable(folder: RunFolder) -> Steps[tuple[tuple[int, ...], tuple[int, ...]]]:
    level = listing((yield [ListRequest(folder.durable_prefix)])[0])
    steps = sorted(int(name) for name in level.folders if name.isdecimal() and int(name) > 0)
    answers = yield [ListRequest(folder.durable_step(step)) for step in steps]
    levels = [listing(answer) for answer in answers]
    judged = [saves.judge(step, level.objects, level.folders) for step, level in zip(steps, levels, strict=True)]
    complete = [each.step for each in judged if each.state is SaveState.COMPLETE]
    while complete and judged[steps.index(complete[-1])].framework == "dcp":
        # The highest one is what would be restored; its data files may be cut off.
        step = complete[-1]
        sizes = {item.name: item.size for item in levels[steps.index(step)].objects}
        metadata = stored((yield [ReadRequest(folder.durable_step(step) + saves.DCP_MARKER)])[0])
        if metadata is not None and not saves.missing_of_dcp(metadata.body, sizes):
            break
        complete.pop()
    return tuple(complete), tuple(step for step in steps if step not in complete)


def _records(folder: RunFolder) -> Steps[dict[str, Document]]:
    return (yield from _named_documents([folder.run_record, folder.status, folder.lease]))


def _named_documents(object_names: Sequence[str], *, whole_names: bool = False) -> Steps[dict[str, Document]]:
    """Read JSON objects: those that there are, by the last part of their names or by the whole of them."""
    if not object_names:
        return {}
    answers = yield [ReadRequest(name) for name in object_names]
    found = {}
    for name, answer in zip(object_names, answers, strict=True):
        document = _document(answer)
        if document is not None:
            found[name if whole_names else name.rpartition("/")[2]] = document
    return found


def _document(answer: Any) -> Document | None:
    found = stored(answer)
    if found is None:
        return None
    try:
        document = json.loads(found.body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
