"""Undoing a sweep: putting folders back out of the trash. Pure: steps for a bulk client.

Each comes back by one rename, whole. Nothing is written over: what has a folder of its name stays in the trash. Nothing
comes back that the run must not restore any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everstep.checkpoints import names
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome
from everstep.clients.requests import ListRequest, ReadRequest
from everstep.retain import journals, records, trash
from everstep.retain.plan import RetentionRefused
from everstep.retain.sweep_report import SweepSettings, SweepStopped, UndoReport
from everstep.retain.trash import Journal
from everstep.spec.findings import error


@dataclass(frozen=True)
class Found:
    """What there is of a plan's sweep: its journal, if any, and its trash folders, newest first."""

    journal: Journal | None
    places: tuple[str, ...]


def find(folder: RunFolder, plan_hash: str) -> bulk.BulkSteps[Found]:
    """Look for what a plan's sweep took. Changes nothing.

    Raises RetentionRefused when no plan of that hash was ever applied, SweepStopped when the journal can't be read.
    """
    journal = yield from journals.read(folder, plan_hash)
    level = bulk.listing((yield [ListRequest(folder.prefix)])[0])
    places = trash.of_plan(level.folders, plan_hash)
    is_another = journal is not None and not trash.is_of(journal.plan, plan_hash)
    if is_another or (journal is None and not places):
        raise _refused(folder, plan_hash, None)
    return Found(journal, tuple(places))


def undo(folder: RunFolder, plan_hash: str, settings: SweepSettings) -> bulk.BulkSteps[UndoReport]:
    """Put back what a plan's sweep took, or go on with that. The caller holds the run's lease.

    Raises what `find` does, RetentionRefused when there is nothing to put back, SweepStopped when it must not go on.
    """
    found = yield from find(folder, plan_hash)
    journal = found.journal
    if journal is not None and journal.state != "undone" and not found.places:
        raise _refused(folder, plan_hash, journal)
    report = UndoReport(plan_hash if journal is None else journal.plan, folder.run, folder.bucket)
    if journal is not None and journal.state != "undone":
        # Before anything comes back: a sweep of this plan that was interrupted must not take it again.
        journal.state = "undone"
        yield from journals.write(folder, journal, settings)
    for place in found.places:
        yield from _put_back(folder, place, journal, settings, report)
    return report


def _put_back(
    folder: RunFolder, place: str, journal: Journal | None, settings: SweepSettings, report: UndoReport
) -> bulk.BulkSteps[None]:
    here = f"{folder.prefix}{place}/"
    backups = [name for name in bulk.listing((yield [ListRequest(here)])[0]).folders if name != DURABLE]
    saves = bulk.listing((yield [ListRequest(f"{here}{DURABLE}/")])[0])
    found = [*backups, *(f"{DURABLE}/{name}" for name in saves.folders)]
    for first in range(0, len(found), settings.together):
        group = found[first : first + settings.together]
        present, record = yield from _look(folder, settings)
        bound = record.get("bound_step")
        steps = (yield from _steps(here, group, journal)) if bound is not None else {}
        go = []
        for name in group:
            why = "something of that name is there" if name in present else _why_not(name, steps.get(name), record)
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
    """Return what there is in the run's folder, and its record.

    Raises SweepStopped when the lease was lost, RetentionRefused when the record can't be understood: it says what must
    not come back.
    """
    requests: list[bulk.Request] = [
        ListRequest(folder.prefix),
        ListRequest(folder.durable_prefix),
        ListRequest(folder.records_prefix),
        ReadRequest(folder.run_record),
    ]
    answers = yield requests
    level, saves, own = (bulk.listing(each) for each in answers[:3])
    expected = settings.fence()
    found = next((each.generation for each in own.objects if folder.records_prefix + each.name == folder.lease), 0)
    if expected is not None and found != expected:
        raise SweepStopped(
            f"undoing a sweep of run {folder.run!r} does not go on",
            [error(folder.url(folder.lease), "taken over by somebody else", f"generation {expected}", "undo it again")],
        )
    body = bulk.stored(answers[3])
    record = records.parse_run_record(folder, body.body if body is not None else None)
    present = {*level.folders, *(f"{DURABLE}/{name}" for name in saves.folders)}
    return present, record


def _steps(here: str, group: Sequence[str], journal: Journal | None) -> bulk.BulkSteps[dict[str, int]]:
    """Return the steps of backups and saves as the journal has them, else as the names in them say: the highest."""
    steps = {name: found for name in group if (found := names.parse_step(name.rpartition("/")[2])) is not None}
    noted = {} if journal is None else {name: journal.units.get(name, {}).get("step") for name in group}
    steps |= {name: step for name, step in noted.items() if isinstance(step, int)}
    unknown = [name for name in group if name not in steps]
    answers = yield [ListRequest(f"{here}{name}/") for name in unknown]
    for name, answer in zip(unknown, answers, strict=True):
        metas = (names.parse_meta(each.name) for each in bulk.listing(answer).objects)
        found = max((meta.step for meta in metas if meta is not None), default=None)
        if found is not None:
            steps[name] = found
    return steps


def _why_not(name: str, step: int | None, record: dict[str, Any]) -> str | None:
    """A run that was taken back since must not find what it was taken back from."""
    if name in (record.get("quarantined") or ()):
        return "quarantined"
    bound = record.get("bound_step")
    if bound is not None and step is not None and step > bound:
        return f"step {step} is above the run's bound {bound}: it would be restored"
    return None


def _refused(folder: RunFolder, plan_hash: str, journal: Journal | None) -> RetentionRefused:
    if journal is None:
        place = folder.url(f"{folder.records_prefix}retention/sweeps/")
        why = error(folder.url(), "no sweep of that plan", "the hash of one that was applied", f"look into {place}")
    else:
        why = error(
            folder.url(),
            f"no trash of the sweep of {journal.started}: it took nothing, was emptied, or the bucket has no folders",
            "a sweep whose trash is not emptied yet",
            "soft delete may have the objects: gcloud storage restore (see docs/how-to/retention.md)",
        )
    return RetentionRefused(f"plan {plan_hash} of run {folder.run!r} is not undone", [why])
