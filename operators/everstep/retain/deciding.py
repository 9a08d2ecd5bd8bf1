"""Making a plan: protections first, then the policy, then whether the plan as a whole may be made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.saves import SaveState
from everstep.retain import protections, records, refusals, sizes
from everstep.retain.bucket_rules import BucketRules
from everstep.retain.inventory import Contents, FoundBackup, FoundLeftover, FoundSave, Inventory
from everstep.retain.plan import Decision, Kind, ProtectedRead, RetentionPlan, RetentionRefused, Unit
from everstep.retain.policy import PINNED, Candidate, Policy, reasons_to_keep
from everstep.retain.protections import NEWEST, Settings
from everstep.retain.words import duration


def make(
    found: Inventory,
    policy: Policy,
    *,
    now: datetime,
    rules: BucketRules,
    settings: Settings | None = None,
    metrics: Mapping[int, float] | None = None,
    force: str | None = None,
) -> RetentionPlan:
    """Decide over everything in a run's folder. Raises RetentionRefused with all findings when no plan may be made.

    :param now: the time of deciding, aware
    :param metrics: by step, for backups and for saves that carry none themselves
    :param force: the run's name, to have a plan that removes a larger share than is set
    """
    settings = settings or Settings()
    backups = _backup_units(found, policy, now, settings, metrics or {})
    saves = _save_units(found, policy, now, settings, metrics or {})
    units = (*backups, *saves, *(_leftover_unit(found, each, now, settings) for each in found.leftovers))
    units = sizes.filled_in(found, units)
    is_forced = force == found.folder.run
    findings = [
        *refusals.foreign(found),
        *refusals.too_small(found),
        *refusals.emptied(found, units),
        *([] if is_forced else refusals.too_much(found, units, settings, force)),
    ]
    if findings:
        raise RetentionRefused(f"no retention plan is made for run {found.folder.run!r}", findings)
    return RetentionPlan(
        bucket=found.folder.bucket,
        run=found.folder.run,
        made_at=now,
        policy=policy,
        shape=found.shape,
        hierarchical=rules.hierarchical,
        units=units,
        protected_read=_protected_read(found, units),
        totals=sizes.totals(found, units, now, rules.soft_delete),
        warnings=(*rules.warnings, *refusals.warnings(found, policy)),
        forced=is_forced,
        settings=settings.as_dict(),
    )


def _backup_units(
    found: Inventory, policy: Policy, now: datetime, settings: Settings, metrics: Mapping[int, float]
) -> list[Unit]:
    protected = protections.of_backups(found, now, settings)
    by_policy: dict[str, tuple[str, ...]] = {}
    groups: dict[Shape, list[Candidate]] = {}
    for each in found.backups:
        shape = found.shape if each.is_complete else each.other_shape
        time = each.backup.time
        # A name from the future would push all others out of their windows.
        if shape is not None and time is not None and time <= now + settings.skew:
            metric = metrics.get(each.backup.step) if each.backup.step is not None else None
            groups.setdefault(shape, []).append(Candidate(each.name, time, each.backup.step, metric))
    for shape, candidates in groups.items():
        suffix = "" if shape == found.shape else f", of those for {records.shown(shape)}"
        for name, why in reasons_to_keep(candidates, policy, now=now).items():
            by_policy[name] = tuple(each + suffix for each in why)
    return [
        _unit(found, "backup", each.name, each.backup.state.value, each.backup.step, each.backup.time, each.contents)(
            (*protected[each.name], *_pinned(each.name, policy), *by_policy.get(each.name, ())), _why_backup_goes(each)
        )
        for each in found.backups
    ]


def _save_units(
    found: Inventory, policy: Policy, now: datetime, settings: Settings, metrics: Mapping[int, float]
) -> list[Unit]:
    protected = protections.of_saves(found, now, settings)
    candidates = [
        Candidate(each.name, each.save.created, each.save.step, _metric(each, metrics))
        for each in found.saves
        if each.save.state is SaveState.COMPLETE and each.save.created is not None and each.save.created <= now
    ]
    by_policy = reasons_to_keep(candidates, policy, now=now)
    return [
        _unit(
            found,
            "dcp" if each.save.framework == "dcp" else "durable",
            each.name,
            each.save.state.value,
            each.save.step,
            each.save.created,
            each.contents,
        )((*protected[each.name], *_pinned(each.name, policy), *by_policy.get(each.name, ())), "no rule keeps it")
        for each in found.saves
    ]


def _pinned(name: str, policy: Policy) -> Sequence[str]:
    """Also what no rule looks at, because it is not complete."""
    return (PINNED,) if name in policy.pins else ()


def _leftover_unit(found: Inventory, each: FoundLeftover, now: datetime, settings: Settings) -> Unit:
    make_unit = _unit(found, "leftover", each.name, each.state, None, each.since, each.contents)
    if named := protections.of_leftover(each.name, found):
        return make_unit(named, "")
    if each.since is None:
        return make_unit(("seen for the first time: its age is not known",), "")
    if each.since > now - settings.leftovers:
        return make_unit((f"younger than {duration(settings.leftovers)}",), "")
    return make_unit((), f"{each.state} for {duration(now - each.since)}")


def _unit(
    found: Inventory, kind: Kind, name: str, state: str, step: int | None, time: datetime | None, contents: Contents
) -> Callable[[Sequence[str], str], Unit]:
    """Return how a unit is made of the reasons why it stays and, without any, of why it goes."""

    def with_reasons(stays: Sequence[str], goes: str) -> Unit:
        decision: Decision = "keep" if stays else "sweep"
        reasons = tuple(dict.fromkeys(stays)) or (goes,)
        prefix = f"{found.folder.prefix}{name}/"
        return Unit(kind, name, prefix, state, step, decision, reasons, contents.fingerprint, time)

    return with_reasons


def _protected_read(found: Inventory, units: Sequence[Unit]) -> ProtectedRead:
    newest = tuple(unit.name for unit in units if any(reason.startswith(NEWEST) for reason in unit.reasons))
    fresh = {each.name for each in found.backups if each.is_fresh}
    fresh |= {each.name for each in found.saves if each.is_fresh}
    assert fresh.issuperset(newest), f"{newest} protect and were not all judged anew"
    return ProtectedRead(
        forced_restore=found.forced_restore,
        forced_generation=found.forced_generation,
        lineage=found.run_record.get("lineage"),
        bound_step=found.bound_step,
        quarantined=found.quarantined,
        run_record_generation=found.run_record_generation,
        pins=tuple(sorted(found.pins)),
        pins_generation=found.pins_generation,
        newest_complete=newest,
    )


def _why_backup_goes(each: FoundBackup) -> str:
    if each.is_complete or each.other_shape:
        return "no rule keeps it"
    return f"{each.backup.state.value} ({'; '.join(each.backup.reasons[:2])}), and a newer one is complete"


def _metric(each: FoundSave, metrics: Mapping[int, float]) -> float | None:
    return each.metric if each.metric is not None else metrics.get(each.save.step)
