"""Reading the plain Orbax and DCP folders of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from everstep.checkpoints import names, saves
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.checkpoints.saves import SaveState
from everstep.clients.requests import ListRequest, ReadRequest, Steps, listing, stored
from everstep.retain.inventory import FoundSave, Inventory
from everstep.retain.levels import batches, contents_of
from everstep.retain.remembered import Memory


def read(
    base: Inventory, memory: Memory, metric: str | None, keep_complete: int
) -> Steps[tuple[list[FoundSave], list[str]]]:
    """Return the saves, highest step first, and the folders beside them that no save ends in."""
    level = listing((yield [ListRequest(base.folder.durable_prefix)])[0])
    # `0500` and digits of other scripts are nobody's steps.
    steps = sorted((step for step in map(names.parse_step, level.folders) if step is not None), reverse=True)
    present = set(level.folders)
    steps = [step for step in dict.fromkeys(steps) if str(step) in present]
    found = {step: memory.saves[step] for step in steps[keep_complete:] if step in memory.saves}
    for batch in batches([step for step in steps if step not in found]):
        answers = yield [ListRequest(base.folder.durable_step(step)) for step in batch]
        for step, answer in zip(batch, answers, strict=True):
            inside = listing(answer)
            found[step] = FoundSave(saves.judge(step, inside.objects, inside.folders), contents_of(inside))
    looked_into: set[int] = set()
    while unsure := _newest(base, [found[step] for step in steps], keep_complete) - looked_into:
        for step in sorted(unsure, reverse=True):
            found[step] = yield from _looked_into(base.folder, found[step])
        looked_into |= unsure
    if metric is not None:
        found |= yield from _metrics(base.folder, [found[step] for step in steps], metric)
    taken = {str(step) for step in found}
    others = [f"{DURABLE}/{name}" for name in level.folders if name not in taken]
    return [found[step] for step in steps], others


def _newest(base: Inventory, highest_first: Sequence[FoundSave], count: int) -> set[int]:
    """Return the steps of the newest complete saves that a plan protects: in all and of the live lineage."""
    complete = [each for each in highest_first if each.save.state is SaveState.COMPLETE]
    live = (each for each in complete if base.is_live(each.name, each.save.step))
    return {each.save.step for each in (*complete[:count], *islice(live, count))}


def _looked_into(folder: RunFolder, each: FoundSave) -> Steps[FoundSave]:
    """Judge a save that a plan protects by its framework's own rules: one that was copied in part has a marker."""
    prefix = folder.durable_step(each.save.step)
    level = listing((yield [ListRequest(prefix)])[0])
    fresh = saves.judge(each.save.step, level.objects, level.folders)
    if fresh.state is not SaveState.COMPLETE:
        return FoundSave(fresh, contents_of(level), each.metric)
    if fresh.framework == "dcp":
        body = stored((yield [ReadRequest(prefix + saves.DCP_MARKER)])[0])
        missing = saves.missing_of_dcp(body.body if body else b"", {item.name: item.size for item in level.objects})
    else:
        answers = yield [
            ReadRequest(prefix + saves.ORBAX_METADATA),
            *(ListRequest(f"{prefix}{item}/") for item in level.folders),
        ]
        metadata = stored(answers[0])
        inside = {
            item: (tuple(entry.name for entry in listing(answer).objects), listing(answer).folders)
            for item, answer in zip(level.folders, answers[1:], strict=True)
        }
        items = saves.orbax_items(metadata.body) if metadata else None
        missing = saves.missing_of_orbax(items, level.folders, inside)
    if missing:
        fresh = replace(fresh, state=SaveState.TORN, reasons=tuple(sorted(missing)))
    return FoundSave(fresh, contents_of(level), each.metric)


def _metrics(folder: RunFolder, found: Sequence[FoundSave], metric: str) -> Steps[dict[int, FoundSave]]:
    unread = [each for each in found if each.is_fresh and each.save.framework == "orbax"]
    answers = yield [ReadRequest(folder.durable_step(each.save.step) + saves.ORBAX_METADATA) for each in unread]
    bodies = [stored(answer) for answer in answers]
    return {
        each.save.step: replace(each, metric=saves.orbax_metric(body.body, metric))
        for each, body in zip(unread, bodies, strict=True)
        if body is not None
    }
