"""Undoing a sweep: putting folders back out of the trash. Pure: steps for a bulk client.

Each comes back by one rename, whole. Nothing is written over: what has a folder of its name stays in the trash. Nothing
comes back that the run must not restore any more.
"""

from __future__ import annotations

import json
from typing import Any

from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome
from everstep.clients.requests import ListRequest, ReadRequest
from everstep.retain import journals, trash
from everstep.retain.plan import RetentionRefused
from everstep.retain.sweep_report import SweepSettings, SweepStopped, UndoReport
from everstep.retain.trash import Journal
from everstep.spec.findings import error


def undo(folder: RunFolder, plan_hash: str, settings: SweepSettings) -> bulk.BulkSteps[UndoReport]:
    """Put back what a plan's sweep took, or go on with that. The caller holds the run's lease.

    Raises RetentionRefused when there is nothing to put back, SweepStopped when it must not go on.
    """
    report = UndoReport(plan_hash, folder.run, folder.bucket)
    journal = yield from journals.read(folder, plan_hash)
    level = bulk.listing((yield [ListRequest(folder.prefix)])[0])
    places = trash.of_plan(level.folders, plan_hash)
    if not places:
        if journal is not None and journal.state == "undone":
            return report
        raise RetentionRefused(f"plan {plan_hash} of run {folder.run!r} is not undone", [_nothing(folder, journal)])
    if journal is not None and journal.state != "undone":
        # Before anything comes back: a sweep of this plan that was interrupted must not take it again.
        journal.state = "undone"
        yield from journals.write(folder, journal, settings)
    for place in places:
        yield from _put_back(folder, place, journal, settings, report)
    return report


def _put_back(
    folder: RunFolder, place: str, journal: Journal | None, settings: SweepSettings, report: UndoReport
) -> bulk.BulkSteps[None]:
    here = f"{folder.prefix}{place}/"
    names = [name for name in bulk.listing((yield [ListRequest(here)])[0]).folders if name != DURABLE]
    saves = bulk.listing((yield [ListRequest(f"{here}{DURABLE}/")])[0])
    found = [*names, *(f"{DURABLE}/{name}" for name in saves.folders)]
    for first in range(0, len(found), settings.together):
        group = found[first : first + settings.together]
        present, record = yield from _look(folder, settings)
        go = []
        for name in group:
            why = "something of that name is there" if name in present else _why_not(name, journal, record)
            if why is None:
                go.append(name)
            else:
                report.skipped[name] = why
        if any(name.startswith(f"{DURABLE}/") for name in go):
            yield [bulk.CreateFolder(folder.durable_prefix)]
        if go:
            renames = [bulk.RenameFolder(f"{here}{name}/", f"{folder.prefix}{name}/") for name in go]
            for name, answer in zip(go, (yield renames), strict=True):
                if bulk.outcome(answer) is Outcome.DONE:
                    report.restored.append(name)
                else:
                    report.skipped[name] = "something of that name is there"
        settings.told(f"{len(report.restored)} put back, {len(report.skipped)} not")
    yield [bulk.DeleteFolder(f"{here}{DURABLE}/")]
    yield [bulk.DeleteFolder(here)]


def _look(folder: RunFolder, settings: SweepSettings) -> bulk.BulkSteps[tuple[set[str], dict[str, Any]]]:
    """Return what there is in the run's folder, and its record. Raises SweepStopped when the lease was lost."""
    requests: list[bulk.Request] = [
        ListRequest(folder.prefix),
        ListRequest(folder.durable_prefix),
        ListRequest(folder.records_prefix),
        ReadRequest(folder.run_record),
    ]
    answers = yield requests
    level, saves, records = (bulk.listing(each) for each in answers[:3])
    expected = settings.fence()
    found = next((each.generation for each in records.objects if folder.records_prefix + each.name == folder.lease), 0)
    if expected is not None and found != expected:
        raise SweepStopped(
            f"undoing a sweep of run {folder.run!r} does not go on",
            [error(folder.url(folder.lease), "taken over by somebody else", f"generation {expected}", "undo it again")],
        )
    body = bulk.stored(answers[3])
    try:
        record = json.loads(body.body) if body is not None else {}
    except ValueError:
        record = {}
    present = {*level.folders, *(f"{DURABLE}/{name}" for name in saves.folders)}
    return present, record if isinstance(record, dict) else {}


def _why_not(name: str, journal: Journal | None, record: dict[str, Any]) -> str | None:
    """A run that was taken back since must not find what it was taken back from."""
    if name in (record.get("quarantined") or ()):
        return "quarantined"
    bound = record.get("bound_step")
    step = ((journal.units.get(name) if journal is not None else None) or {}).get("step")
    if isinstance(bound, int) and isinstance(step, int) and step > bound:
        return f"step {step} is above the run's bound {bound}: it would be restored"
    return None


def _nothing(folder: RunFolder, journal: Journal | None) -> Any:
    if journal is None:
        return error(folder.url(), "no sweep of that plan", "a plan that was applied", "look into everstep/retention")
    return error(
        folder.url(),
        f"no trash of the sweep of {journal.started}: it was emptied, or the bucket has no folders to rename",
        "a sweep whose trash is not emptied yet",
        "soft delete may have the objects: gcloud storage restore (see docs/how-to/retention.md)",
    )
