"""What lies in a plan's trash, and putting back of it what is protected by now. Pure: steps for a bulk client."""

from __future__ import annotations

from everstep.checkpoints.layout import DURABLE
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome
from everstep.clients.requests import ListRequest
from everstep.retain import trash
from everstep.retain.guards import Guard, Protections
from everstep.retain.sweep_report import SweepReport


def in_trash(guard: Guard, protections: Protections) -> bulk.BulkSteps[dict[str, str]]:
    """Return what an earlier group or an earlier start swept of a plan: by its name, the trash that it is in."""
    places = trash.of_plan(protections.folders, guard.plan.hash)
    below = [(place, inner) for place in places for inner in ("", f"{DURABLE}/")]
    if not below:
        return {}
    answers = yield [ListRequest(f"{guard.folder.prefix}{place}/{inner}") for place, inner in below]
    found: dict[str, str] = {}
    for (place, inner), answer in zip(below, answers, strict=True):
        for name in bulk.listing(answer).folders:
            # The newest trash comes first.
            found.setdefault(inner + name, place)
    return found


def put_back(guard: Guard, protections: Protections, report: SweepReport) -> bulk.BulkSteps[None]:
    """Put back what restore.version names by now, and what was pinned."""
    swept = {unit.name: unit for unit in guard.plan.swept}
    protected = {protections.forced or "", *protections.pins}
    wanted = sorted(name for name in protected if name in swept and name not in protections.folders)
    if not wanted:
        return
    trashed = yield from in_trash(guard, protections)
    for name in wanted:
        if name not in trashed:
            continue
        back = bulk.RenameFolder(f"{guard.folder.prefix}{trashed[name]}/{name}/", f"{guard.folder.prefix}{name}/")
        if bulk.outcome((yield [back])[0]) is not Outcome.DONE:
            continue
        report.put_back.append(name)
        report.skipped[name] = protections.why(name) or "protected"
        if name in report.swept:
            report.swept_bytes -= swept[name].bytes or 0
        report.swept = [each for each in report.swept if each != name]
        report.already = [each for each in report.already if each != name]
