"""Folders that crashes and sweeps leave in a run: which they are, and how old."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from everstep.checkpoints import names, saves
from everstep.checkpoints.layout import RunFolder
from everstep.clients.requests import ListRequest, Steps, listing
from everstep.retain import trash
from everstep.retain.inventory import FoundLeftover
from everstep.retain.levels import batches, contents_of
from everstep.retain.remembered import Memory


def read(
    folder: RunFolder, others: Sequence[str], beside_saves: Sequence[str], memory: Memory, now: datetime
) -> Steps[tuple[list[FoundLeftover], list[str]]]:
    """Return the leftovers, and the folders that are neither a leftover nor anything else of a run."""
    states = {name: leftover_state(name) for name in (*others, *beside_saves)}
    wanted = [name for name, state in states.items() if state is not None]
    found = []
    for batch in batches(wanted):
        answers = yield [ListRequest(f"{folder.prefix}{name}/") for name in batch]
        for name, answer in zip(batch, answers, strict=True):
            level = listing(answer)
            since = trash.made_at(name.rpartition("/")[2]) or max(
                (each.created for each in level.objects if each.created), default=None
            )
            state = states[name]
            assert state is not None
            found.append(FoundLeftover(name, state, since or memory.first_seen.get(name), contents_of(level)))
    return found, [name for name, state in states.items() if state is None]


def leftover_state(name: str) -> str | None:
    """Return what a folder is that crashes and sweeps leave, by its path below the run; None when it is none."""
    parent, _, last = name.rpartition("/")
    if last.startswith(trash.PREFIX) and not parent:
        return "trash"
    # A trash beside saves is somebody else's: it goes the way of all else, and can be had back.
    if last.startswith(("_todelete_", trash.PREFIX)):
        return "to be deleted"
    if names.is_in_flight(last) or last.endswith(saves.ORBAX_IN_FLIGHT):
        return "temporary"
    return None
