"""When no plan is made, and what to warn of in one that is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everstep.checkpoints.catalogue import BackupState
from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.names import parse_backup_directory
from everstep.retain import records
from everstep.retain.inventory import Inventory
from everstep.retain.plan import Unit
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings
from everstep.spec.findings import Finding, error


def foreign(found: Inventory) -> Iterable[Finding]:
    """Refuse a folder whose backups are all of another job: the name of the run, or its folder, is mistaken."""
    real = [each for each in found.backups if parse_backup_directory(each.name)]
    if real and all(each.backup.state is BackupState.FOREIGN for each in real):
        yield error(
            found.folder.url(),
            f"every backup in it is foreign ({real[0].name}: {'; '.join(real[0].backup.reasons)})",
            f"backups of run {found.folder.run}",
            "give the job-name that wrote them as the run, or leave the folder alone",
        )


def too_small(found: Inventory) -> Iterable[Finding]:
    """Refuse a shape that somebody gave when backups reach beyond it: what lacks some nodes would count as whole."""
    if found.shape_is_told:
        return
    nodes, workers = found.shape.nodes, found.shape.workers_per_node
    beyond = [each for each in found.backups if each.ranks[0] > nodes or each.ranks[1] > workers]
    if beyond:
        seen = Shape(*(max(each.ranks[part] for each in beyond) for part in (0, 1)))
        yield error(
            found.folder.url(found.folder.prefix + beyond[0].name),
            f"metas of {records.shown(seen)}",
            f"at most those of {records.shown(found.shape)}, as --shape says",
            "say the shape of the job that wrote the newest backups; after a resize, let run.json say it",
        )


def emptied(found: Inventory, units: Sequence[Unit]) -> Iterable[Finding]:
    """Refuse to remove the last complete one."""
    for kinds, what in ((("backup",), "backup"), (("durable", "dcp"), "save")):
        complete = [unit for unit in units if unit.kind in kinds and unit.state == "complete"]
        if complete and not any(unit.keep for unit in complete):
            yield error(
                found.folder.url(),
                f"the plan would remove every complete {what}: {', '.join(unit.name for unit in complete)}",
                "at least one to stay",
                "raise keep_last, or pin one: everstep retain pin RUN NAME --reason TEXT",
            )


def too_much(found: Inventory, units: Sequence[Unit], settings: Settings, force: str | None) -> Iterable[Finding]:
    """Refuse to remove more than a share of what is complete."""
    complete = [unit for unit in units if unit.kind != "leftover" and unit.state == "complete"]
    swept = [unit for unit in complete if not unit.keep]
    if len(swept) > settings.max_share * len(complete):
        yield error(
            found.folder.url(),
            f"the plan would remove {len(swept)} of {len(complete)} complete backups and saves"
            + (f"; forced for run {force!r}" if force else ""),
            f"at most {settings.max_share:.0%} of them",
            f"make it by --force {found.folder.run} and read it: nothing goes before it is applied",
        )


def warnings(found: Inventory, policy: Policy) -> Iterable[str]:
    """Return what whoever reads the plan should know, though it stops nothing."""
    names = {each.name for each in found.backups}
    forced = found.forced_restore
    if forced is not None and forced not in names:
        yield (
            f"{found.folder.url(found.folder.restore_version)} names {forced!r}, which is not there: a training that "
            "is started now would start from nothing. If a sweep took it, everstep retain undo puts it back."
        )
    elif forced is not None and not next(each for each in found.backups if each.name == forced).is_complete:
        yield f"{found.folder.url(found.folder.restore_version)} names {forced}, which is not complete."
    for name in sorted({*found.pins, *policy.pins} - names - {each.name for each in found.saves}):
        yield f"{name} is pinned, but is not there."
    if found.unknown:
        yield f"Left alone, since nothing tells what they are: {', '.join(found.unknown[:5])}."
    others = [each for each in found.backups if each.other_shape]
    if others and others[0].other_shape:
        yield (
            f"{len(others)} backups are whole for another shape ({records.shown(others[0].other_shape)}), so the run "
            f"would not restore them as it is ({records.shown(found.shape)}); the policy keeps them by themselves."
        )
