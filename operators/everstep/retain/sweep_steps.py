"""Applying a plan: what is asked of the bucket, in which order. Pure: steps for a bulk client.

Whatever is interrupted between any two requests, the replicator and the trainer find every checkpoint either whole or
not at all, and the next start goes on where this one ended:

- in a hierarchical bucket a folder leaves by one rename, into the trash;
- in a flat bucket all that makes a checkpoint findable goes first (every `.meta`, the commit marker), then the rest.
  The journal says before that, that this was begun.

Between a few dozen folders what protects is read again. What was named by restore.version or pinned meanwhile is put
back out of the trash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from everstep.checkpoints import names
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome
from everstep.clients.requests import ListRequest
from everstep.retain import emptying, fingerprints, flat_sweep, forgetting, journals, leftovers, put_back, trash
from everstep.retain.flat_sweep import CHANGED, VANISHED
from everstep.retain.guards import AGAIN, Guard, Protections
from everstep.retain.plan import RetentionPlan, RetentionRefused, Unit
from everstep.retain.sweep_report import SweepReport, SweepSettings
from everstep.retain.trash import Journal
from everstep.retain.words import duration
from everstep.spec.findings import Finding, error

PROGRESS_EVERY = timedelta(seconds=10)


def sweep(plan: RetentionPlan, settings: SweepSettings) -> bulk.BulkSteps[SweepReport]:
    """Apply exactly a plan, which was verified, or go on with it. The caller holds the run's lease.

    Raises RetentionRefused for a plan that must not be applied, SweepStopped when it must not go on.
    """
    folder = RunFolder(plan.bucket, plan.run)
    refuse_unsafe(plan)
    started = settings.now()
    report = SweepReport(plan.hash, plan.run, plan.bucket)
    journal = (yield from journals.read(folder, plan.hash)) or Journal.of(plan, started)
    if journal.state == "undone":
        finding = error(
            folder.url(), f"plan {plan.hash} was applied and undone", "a new plan", AGAIN.format(run=folder.url())
        )
        raise RetentionRefused("the plan is not applied again", [finding])
    guard = Guard(plan, folder, settings)
    if journal.state == "applied":
        report = SweepReport.of(journal.report or report.as_dict())
        report.already, report.swept = sorted({*report.already, *report.swept}), []
        report.emptied, report.objects_deleted = [], 0
        protections = yield from guard.look()
        yield from put_back.put_back(guard, protections, report)
    else:
        yield from guard.validate()
        protections = yield from _units(plan, guard, settings, journal, report)
    report.trash = trash.of_plan(protections.folders, plan.hash)
    own_goes = settings.empty_now or any(emptying.is_due(name, settings) for name in report.trash)
    if journal.state == "applying" and report.trash and own_goes:
        # Once its trash is gone, nothing else tells what this sweep took.
        journal.report = report.as_dict()
        yield from journals.write(folder, journal, settings)
    yield from _empty(plan, folder, protections, settings, report)
    made = [time for time in map(trash.made_at, report.trash) if time is not None]
    report.undo_until = trash.text(min(made) + settings.trash_age) if made else None
    report.seconds = (settings.now() - started).total_seconds()
    if journal.state == "applying" and (journal.generation or plan.swept or report.emptied):
        # A night on which nothing went leaves no journal.
        journal.report = report.as_dict()
        if plan.hierarchical or not report.left:
            # Else it goes on, when it is started again, with what the bucket did not let go.
            journal.state, journal.begun = "applied", {}
        yield from journals.write(folder, journal, settings)
    return report


def refuse_unsafe(plan: RetentionPlan) -> None:
    """Refuse a plan that names anything but folders of its run, or leaves no complete one. Raises RetentionRefused."""
    findings: list[Finding] = []
    folder = RunFolder(plan.bucket, plan.run)
    for unit in plan.swept:
        if unit.prefix != f"{folder.prefix}{unit.name}/" or not _is_name_of(unit):
            where = folder.url(unit.prefix)
            findings.append(
                error(where, f"no place of a {unit.kind} named {unit.name!r}", f"a folder of {folder.url()}")
            )
    goes = [unit.name for unit in plan.swept if unit.state == "complete"]
    if goes and not plan.protected_read.newest_complete and not plan.forced:
        findings.append(error(folder.url(), "no complete checkpoint would be left", "at least one"))
    for name in plan.protected_read.newest_complete:
        relied_on = plan.named(name)
        if relied_on is None or not relied_on.keep:
            findings.append(error(folder.url(folder.prefix + name), "relied on and swept", "kept"))
    if findings:
        raise RetentionRefused(f"the plan of run {plan.run!r} is not applied", findings)


def _is_name_of(unit: Unit) -> bool:
    parent, _, last = unit.name.rpartition("/")
    if unit.kind == "backup":
        return not parent and names.looks_like_backup(last)
    if unit.kind == "leftover":
        return parent in ("", DURABLE) and leftovers.leftover_state(unit.name) is not None
    return parent == DURABLE and names.parse_step(last) is not None


def _units(
    plan: RetentionPlan, guard: Guard, settings: SweepSettings, journal: Journal, report: SweepReport
) -> bulk.BulkSteps[Protections]:
    """Sweep all units but trash, and return what protects after the last one."""
    units = [unit for unit in plan.swept if unit.state != "trash"]
    protections = yield from guard.look()
    if units and not journal.generation:
        # Before anything goes, so that whoever finds the trash learns what it is.
        yield from journals.write(guard.folder, journal, settings)
    place = _trash_in_use(protections, plan.hash, settings)
    written = settings.now()
    for number, group in enumerate(_groups(units, settings.together)):
        if number:
            protections = yield from guard.look()
        yield from put_back.put_back(guard, protections, report)
        if plan.hierarchical:
            yield from _into_trash(group, place, guard, protections, journal, report)
        else:
            yield from flat_sweep.delete(group, guard, protections, settings, journal, report)
        settings.told(f"{len(report.swept) + len(report.already)} of {len(units)} swept, {len(report.skipped)} skipped")
        if settings.now() - written > PROGRESS_EVERY:
            written = settings.now()
            journal.progress = {"swept": len(report.swept) + len(report.already), "skipped": len(report.skipped)}
            yield from journals.write(guard.folder, journal, settings)
    if units:
        protections = yield from guard.look()
        yield from put_back.put_back(guard, protections, report)
        yield from forgetting.forget(guard.folder, [name for name, why in report.skipped.items() if why == CHANGED])
    return protections


def _into_trash(
    group: Sequence[Unit],
    place: str,
    guard: Guard,
    protections: Protections,
    journal: Journal,
    report: SweepReport,
) -> bulk.BulkSteps[None]:
    folder = guard.folder
    levels = [bulk.listing(each) for each in (yield [ListRequest(unit.prefix) for unit in group])]
    go: list[Unit] = []
    missing: list[Unit] = []
    for unit, level in zip(group, levels, strict=True):
        found = fingerprints.of_listing(level.objects, level.folders)
        if why := protections.why(unit.name):
            report.skipped[unit.name] = why
        elif (
            not level.objects
            and not level.folders
            and (found != unit.fingerprint or not protections.is_listed(unit.name))
        ):
            missing.append(unit)
        elif found != unit.fingerprint:
            report.skipped[unit.name] = CHANGED
        else:
            go.append(unit)
    if missing:
        yield from _tell_apart(missing, guard, protections, journal, report)
    if not go:
        return
    parents = {f"{folder.prefix}{place}/{unit.name.rpartition('/')[0]}".rstrip("/") + "/" for unit in go}
    absent = sorted(parents - guard.made)
    if absent:
        yield [bulk.CreateFolder(name) for name in absent]
        guard.made |= parents
    answers = yield [bulk.RenameFolder(unit.prefix, f"{folder.prefix}{place}/{unit.name}/") for unit in go]
    for unit, answer in zip(go, answers, strict=True):
        match bulk.outcome(answer):
            case Outcome.DONE:
                report.swept.append(unit.name)
                report.swept_bytes += unit.bytes or 0
            case Outcome.GONE:
                report.skipped[unit.name] = VANISHED
            case Outcome.EXISTS:
                report.skipped[unit.name] = "made anew while it was swept"
            case _:
                report.skipped[unit.name] = CHANGED


def _tell_apart(
    units: Sequence[Unit], guard: Guard, protections: Protections, journal: Journal, report: SweepReport
) -> bulk.BulkSteps[None]:
    """Tell units that an earlier start swept from those that somebody else removed."""
    trashed = yield from put_back.in_trash(guard, protections)
    emptied = {*(journal.report or {}).get("swept", ()), *(journal.report or {}).get("already", ())}
    for unit in units:
        if unit.name in trashed or unit.name in emptied:
            report.already.append(unit.name)
        else:
            report.skipped[unit.name] = VANISHED


def _empty(
    plan: RetentionPlan, folder: RunFolder, protections: Protections, settings: SweepSettings, report: SweepReport
) -> bulk.BulkSteps[None]:
    at_once = set(report.trash) if settings.empty_now else set()
    folders = {name for name in protections.folders if not protections.is_forced_into(name)}
    for unit in plan.swept:
        if unit.state != "trash" or unit.name not in protections.folders:
            continue
        if unit.name not in folders:
            report.skipped[unit.name] = "restore.version names a backup in it"
        elif trash.made_at(unit.name) is not None:
            if not emptying.is_due(unit.name, settings):
                report.skipped[unit.name] = f"younger than {duration(settings.trash_age)}"
        else:
            # A trash that no sweep made has no stamp: the plan judged its age.
            level = bulk.listing((yield [ListRequest(unit.prefix)])[0])
            if fingerprints.of_listing(level.objects, level.folders) == unit.fingerprint:
                at_once.add(unit.name)
            else:
                report.skipped[unit.name] = CHANGED
    due = [name for name in sorted(folders) if name in at_once or emptying.is_due(name, settings)]
    for name in (yield from _with_forced(folder, due, protections)):
        report.skipped[name] = f"restore.version names {protections.forced}, which lies in it: undo its sweep"
        folders.remove(name)
    yield from emptying.empty(folder, folders, settings, report, at_once=at_once, hierarchical=plan.hierarchical)


def _with_forced(folder: RunFolder, due: Sequence[str], protections: Protections) -> bulk.BulkSteps[list[str]]:
    """Return the trash in which lies what restore.version names, and which is not where it was."""
    forced = protections.forced
    if not due or not forced or not names.looks_like_backup(forced) or forced in protections.folders:
        return []
    answers = yield [ListRequest(f"{folder.prefix}{name}/") for name in due]
    return [name for name, answer in zip(due, answers, strict=True) if forced in bulk.listing(answer).folders]


def _trash_in_use(protections: Protections, plan_hash: str, settings: SweepSettings) -> str:
    now = settings.now()
    for name in trash.of_plan(protections.folders, plan_hash):
        made = trash.made_at(name)
        if made is not None and now - made < trash.GOES_ON_FOR:
            return name
    return trash.folder_name(plan_hash, now)


def _groups(units: Sequence[Unit], together: int) -> Iterator[Sequence[Unit]]:
    for first in range(0, len(units), together):
        yield units[first : first + together]
