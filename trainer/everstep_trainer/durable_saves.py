"""Durable saves of a run in the bucket: ``checkpoints/<step>/``, complete once the commit marker is there."""

from __future__ import annotations

import logging

from everstep.checkpoints import last_known_good, names
from everstep.checkpoints.layout import RunFolder
from everstep.checkpoints.saves import DCP_MARKER
from everstep_trainer.bucket import Bucket
from everstep_trainer.run_record import RunRecord

logger = logging.getLogger(__name__)


def newest(bucket: Bucket, folder: RunFolder, record: RunRecord, *, above: int = 0) -> int | None:
    """The highest complete durable save above a step, within bound and quarantine."""
    steps = [step for name in bucket.list_level(folder.durable_prefix).folders if (step := names.parse_step(name))]
    for step in sorted(steps, reverse=True):
        if step <= above:
            return None
        if record.bound_step is not None and step > record.bound_step:
            continue
        if last_known_good.durable_name(step) in record.quarantined:
            continue
        if bucket.exists(folder.durable_marker(step)):
            return step
    return None


def is_complete_or_cleared(bucket: Bucket, folder: RunFolder, step: int) -> bool:
    """Whether a complete save of the step is there. What an attempt left that died while saving is deleted first.

    A save of PyTorch DCP, by a training of this name that used it, counts as one: it is never deleted here.
    Not left to Orbax, which needs credentials for another API to remove anything from a bucket with folders.
    """
    found = bucket.names_below(folder.durable_step(step))
    if folder.durable_marker(step) in found:
        return True
    if folder.durable_step(step) + DCP_MARKER in found:
        logger.warning("%s holds a save of PyTorch DCP; left as it is", folder.url(folder.durable_step(step)))
        return True
    if found:
        logger.warning("%s was not finished; replacing it", folder.url(folder.durable_step(step)))
    for name in found:
        bucket.delete(name)
    return False
