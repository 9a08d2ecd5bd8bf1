"""Emptying the trash of a run. Pure: steps for a bulk client."""

from __future__ import annotations

from collections.abc import Collection

from everstep.checkpoints.layout import RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome
from everstep.retain import deletion, trash
from everstep.retain.sweep_report import SweepReport, SweepSettings


def empty(
    folder: RunFolder,
    names: Collection[str],
    settings: SweepSettings,
    report: SweepReport,
    *,
    at_once: Collection[str] = (),
    hierarchical: bool = True,
) -> bulk.BulkSteps[None]:
    """Delete trash folders that are old enough, and what an emptying that was interrupted left.

    :param names: the folders right below the run
    :param at_once: those that go whatever their age
    """
    for name in sorted(names):
        if name not in at_once and not is_due(name, settings):
            continue
        doomed = name if name.endswith(trash.EMPTYING) or not hierarchical else name + trash.EMPTYING
        if doomed != name:
            # Renamed first: from now on nobody can put back what may be half gone.
            if doomed in names:
                yield from _delete(folder, doomed, report, hierarchical)
            renaming = bulk.RenameFolder(f"{folder.prefix}{name}/", f"{folder.prefix}{doomed}/")
            if bulk.outcome((yield [renaming])[0]) is not Outcome.DONE:
                report.left[folder.prefix + name] = "can't be renamed now: somebody else works on it"
                continue
        settings.told(f"emptying {folder.url(folder.prefix + name)}")
        yield from _delete(folder, doomed, report, hierarchical)
        if name in report.trash:
            report.trash.remove(name)


def is_due(name: str, settings: SweepSettings) -> bool:
    """Say whether a folder is a trash that is old enough to be emptied, or whose emptying has begun."""
    made = trash.made_at(name)
    if made is None:
        return False
    return name.endswith(trash.EMPTYING) or settings.now() - made >= settings.trash_age


def _delete(folder: RunFolder, name: str, report: SweepReport, hierarchical: bool) -> bulk.BulkSteps[None]:
    prefix = f"{folder.prefix}{name}/"
    done = yield from (deletion.tree(prefix) if hierarchical else deletion.below(prefix))
    report.objects_deleted += done.objects
    report.left |= done.left
    if not done.left and name.removesuffix(trash.EMPTYING) not in report.emptied:
        report.emptied.append(name.removesuffix(trash.EMPTYING))
