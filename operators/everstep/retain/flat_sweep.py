"""Sweeping where folders can't be renamed: what makes a checkpoint findable goes first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from everstep.checkpoints.layout import COMMIT_MARKER
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import FoundObject
from everstep.clients.requests import Listing, ListRequest
from everstep.retain import deletion, fingerprints, journals, trash
from everstep.retain.deletion import Deleted
from everstep.retain.guards import Guard, Protections
from everstep.retain.plan import Unit
from everstep.retain.sweep_report import SweepReport, SweepSettings
from everstep.retain.trash import Journal

CHANGED = "changed since the plan was made"
VANISHED = "not there any more"
# What the readers of plain Orbax and of torch's distributed checkpoints look for.
MARKERS = (COMMIT_MARKER, ".metadata")


def delete(
    group: Sequence[Unit],
    guard: Guard,
    protections: Protections,
    settings: SweepSettings,
    journal: Journal,
    report: SweepReport,
) -> bulk.BulkSteps[None]:
    """Delete units: of each all markers, then the rest; and note in the journal before that they were begun."""
    levels = [bulk.listing(each) for each in (yield [ListRequest(unit.prefix) for unit in group])]
    go: list[tuple[Unit, Listing]] = []
    for unit, level in zip(group, levels, strict=True):
        begun = journal.begun.get(unit.name)
        is_as_planned = fingerprints.of_listing(level.objects, level.folders) == unit.fingerprint
        if why := protections.why(unit.name):
            report.skipped[unit.name] = f"{why}, after its deletion was begun" if begun else why
        elif not level.objects and not level.folders and begun:
            report.already.append(unit.name)
        elif not level.objects and not level.folders and not (is_as_planned and protections.is_listed(unit.name)):
            report.skipped[unit.name] = VANISHED
        elif not begun and not is_as_planned:
            report.skipped[unit.name] = CHANGED
        elif begun and _newest(level) > datetime.fromisoformat(begun):
            report.skipped[unit.name] = "written to after its deletion was begun"
        else:
            go.append((unit, level))
    fresh = {unit.name: level for unit, level in go if unit.name not in journal.begun}
    if fresh:
        now = settings.now()
        journal.begun |= {name: trash.text(max(now, _newest(level))) for name, level in fresh.items()}
        journal.progress = {"swept": len(report.swept), "skipped": len(report.skipped)}
        yield from journals.write(guard.folder, journal, settings)
    if go:
        yield from _delete_begun(go, journal, report)


def _delete_begun(go: Sequence[tuple[Unit, Listing]], journal: Journal, report: SweepReport) -> bulk.BulkSteps[None]:
    """Delete all markers of all units; then of each whose markers are gone the rest, page by page, side by side."""
    done = {unit.name: Deleted() for unit, _ in go}
    marked = {unit.name: markers(unit, level) for unit, level in go}
    yield from deletion.objects_of(marked, done)
    again = [unit for unit, _ in go if marked[unit.name] and not done[unit.name].left]
    if again:
        # An upload that goes on would have brought new ones.
        for unit, answer in zip(again, (yield [ListRequest(unit.prefix) for unit in again]), strict=True):
            fresh = markers(unit, bulk.listing(answer))
            done[unit.name].left |= {each.name: "written while it was swept" for each in fresh}
    pages = {unit.name: bulk.ObjectsRequest(unit.prefix) for unit, _ in go if not done[unit.name].left}
    while pages:
        answers = yield list(pages.values())
        found = dict(zip(pages, map(bulk.page, answers), strict=True))
        mine: dict[str, list[FoundObject]] = {}
        for name, page in found.items():
            begun = datetime.fromisoformat(journal.begun[name])
            mine[name] = [each for each in page.objects if each.created is None or each.created <= begun]
            others = [each for each in page.objects if each.created is not None and each.created > begun]
            done[name].left |= {each.name: "made since the sweep began" for each in others}
        yield from deletion.objects_of(mine, done)
        pages = {name: replace(pages[name], token=page.token) for name, page in found.items() if page.token}
    for unit, _ in go:
        _note(unit, done[unit.name], report)


def _note(unit: Unit, done: Deleted, report: SweepReport) -> None:
    report.objects_deleted += done.objects
    report.swept_bytes += done.bytes
    if done.left:
        report.left |= done.left
        report.skipped[unit.name] = f"{len(done.left)} objects are left: {next(iter(done.left.values()))}"
    else:
        report.swept.append(unit.name)


def markers(unit: Unit, level: Listing) -> list[FoundObject]:
    """Return the objects that make a checkpoint findable."""
    return [
        FoundObject(unit.prefix + each.name, each.generation, each.size, each.created)
        for each in level.objects
        if (each.name.endswith(".meta") if unit.kind == "backup" else each.name in MARKERS)
    ]


def _newest(level: Listing) -> datetime:
    return max(
        (each.created for each in level.objects if each.created), default=datetime.fromisoformat("1970-01-01T00:00Z")
    )
