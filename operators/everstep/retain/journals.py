"""Reading and writing the journal of a sweep. Pure: steps for a bulk client."""

from __future__ import annotations

import json

from everstep.checkpoints.layout import RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.requests import ReadRequest
from everstep.retain import trash
from everstep.retain.sweep_report import SweepSettings, SweepStopped
from everstep.retain.trash import Journal
from everstep.spec.findings import error

_TRIES = 3


def read(folder: RunFolder, plan_hash: str) -> bulk.BulkSteps[Journal | None]:
    """Return the journal of a plan's sweep, None when there is none. Raises SweepStopped when it can't be read."""
    name = trash.journal_name(folder, plan_hash)
    found = bulk.stored((yield [ReadRequest(name)])[0])
    if found is None:
        return None
    try:
        return Journal.read(json.loads(found.body), found.generation)
    except (ValueError, KeyError, TypeError) as failure:
        raise SweepStopped(
            f"the journal of a sweep of run {folder.run!r} can't be read",
            [
                error(
                    folder.url(name),
                    f"{type(failure).__name__}: {failure}",
                    "a journal as Everstep writes it",
                    f"make a new plan: everstep retain plan {folder.url()}",
                )
            ],
        ) from None


def write(folder: RunFolder, journal: Journal, settings: SweepSettings) -> bulk.BulkSteps[None]:
    """Write a journal over the generation that was read. Raises SweepStopped when somebody else wrote it meanwhile."""
    name = trash.journal_name(folder, journal.plan)
    journal.updated = trash.text(settings.now())
    for _ in range(_TRIES):
        answer = (yield [bulk.WriteRequest(name, journal.document(), journal.generation)])[0]
        if isinstance(answer, bulk.Written):
            journal.generation = answer.generation
            return
        found = bulk.stored((yield [ReadRequest(name)])[0])
        if found is not None and json.loads(found.body) == json.loads(json.dumps(journal.document())):
            # It was written, and the answer got lost.
            journal.generation = found.generation
            return
        if found is not None and found.generation != journal.generation:
            break
    raise SweepStopped(
        f"the sweep of run {folder.run!r} does not go on",
        [
            error(
                folder.url(name),
                "written by somebody else meanwhile",
                "one sweep of a run at a time",
                "nothing, if another sweep of this plan runs now; otherwise apply it again",
            )
        ],
    )
