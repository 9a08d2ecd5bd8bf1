"""A plan for one run from its bucket: reads, decides, remembers. Nothing that a training needs is changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from everstep.checkpoints.completeness import Shape
from everstep.clients.errors import Conflict, Forbidden
from everstep.clients.storage import BucketClient
from everstep.retain import bucket_rules, clock, deciding, reading, remembered
from everstep.retain.inventory import Inventory
from everstep.retain.place import run_folder
from everstep.retain.plan import RetentionPlan
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings

AT_ONCE = 64
"""Requests under way at a time."""

log = logging.getLogger(__name__)


def plan_run(
    bucket: BucketClient,
    run: str,
    policy: Policy,
    *,
    now: datetime,
    shape: Shape | None = None,
    settings: Settings | None = None,
    force: str | None = None,
    measure: bool = False,
    metrics: Mapping[int, float] | None = None,
    remember: bool = True,
) -> RetentionPlan:
    """Make the plan of one run. Raises RetentionRefused with all findings when none may be made.

    :param shape: instead of the one in run.json
    :param force: the run's name, to have a plan that removes a larger share than `settings.max_share`
    :param measure: count all that would go, a request for each 1,000 objects, instead of estimating it
    :param metrics: by step, where saves carry none themselves
    :param remember: take what has settled from `<run>/everstep/retention/verdicts.json`, and write it there
    """
    settings = settings or Settings()
    folder = run_folder(bucket.name, run)
    metric = policy.best.metric if policy.best else None
    steps = reading.read(
        folder,
        now=now,
        shape=shape,
        keep_complete=settings.keep_complete,
        grace=settings.incomplete,
        skew=settings.skew,
        metric=metric,
        use_memory=remember,
    )
    with ThreadPoolExecutor(1) as beside:
        metadata = beside.submit(bucket.metadata)
        found = bucket.run(steps, at_once=AT_ONCE)
        rules = bucket_rules.read(metadata.result(), run)
    clock.refuse_wrong(bucket)
    if remember:
        _remember(bucket, found, metric, now)

    def decide() -> RetentionPlan:
        return deciding.make(found, policy, now=now, rules=rules, settings=settings, metrics=metrics, force=force)

    plan = decide()
    if measure and plan.swept:
        found = bucket.run(reading.measure(found, [unit.name for unit in plan.swept]), at_once=AT_ONCE)
        plan = decide()
    return plan


def _remember(bucket: BucketClient, found: Inventory, metric: str | None, now: datetime) -> None:
    """Write what has settled, if there is any news; who may not, or comes second, does without."""
    name = remembered.object_name(found.folder)
    document = remembered.document(found, metric, now)
    if not (document["backups"] or document["saves"] or document["first_seen"]):
        return
    if _same(found.memory, document):
        return
    try:
        bucket.write(name, document, generation=found.memory_generation)
    except (Conflict, Forbidden) as failure:
        log.info("What was judged is not remembered: %s", failure.message)


def _same(body: bytes, document: Mapping[str, object]) -> bool:
    try:
        return bool(json.loads(body) == document)
    except ValueError:
        return False
