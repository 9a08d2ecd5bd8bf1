"""Forgetting remembered verdicts that turned out to be stale. Pure: steps for a bulk client."""

from __future__ import annotations

import json
from collections.abc import Collection

from everstep.checkpoints.layout import RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.requests import ReadRequest
from everstep.retain import remembered


def forget(folder: RunFolder, names: Collection[str]) -> bulk.BulkSteps[None]:
    """Forget what is remembered of some backups and saves, so that the next plan looks at them.

    A plan takes what has settled from memory, also its fingerprint: what changed after that would be planned for and
    skipped for ever. Whoever writes it at the same time is left to.
    """
    place = remembered.object_name(folder)
    found = bulk.stored((yield [ReadRequest(place)])[0]) if names else None
    if found is None:
        return
    try:
        document = json.loads(found.body)
        left = remembered.without(document, names)
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if left != document:
        yield [bulk.WriteRequest(place, left, found.generation)]
