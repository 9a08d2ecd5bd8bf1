"""Applying and undoing retention plans on a real bucket. Knows no Airflow."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from everstep.clients import bulk_requests as bulk
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.pace import Pace
from everstep.clients.storage import BucketClient
from everstep.clients.storage_bulk import OBJECTS_PER_SECOND, BulkClient
from everstep.retain import clock, somebody, sweep_steps, trash, undo_steps
from everstep.retain.held_run import HeldRun
from everstep.retain.place import run_folder
from everstep.retain.plan import RetentionPlan, RetentionRefused
from everstep.retain.sweep_report import SweepReport, SweepSettings, UndoReport
from everstep.spec.findings import error

log = logging.getLogger(__name__)


def apply(
    bucket: BucketClient,
    plan: RetentionPlan,
    *,
    cluster: KubernetesClient | None = None,
    holder: str | None = None,
    settings: SweepSettings | None = None,
    objects_per_second: float = OBJECTS_PER_SECOND,
    beside_training: bool = False,
) -> SweepReport:
    """Apply exactly a plan, or go on with it after a crash; then empty trash that is old enough.

    Raises RetentionRefused for a plan that must not be applied, LeaseHeldError while somebody else holds the run,
    SweepStopped when it must not go on, and the errors of `everstep.clients.errors`.

    :param plan: as `plan.verify` returned it
    :param cluster: where the run's JobSet is; None when it can't be looked into
    :param holder: who sweeps, the same over all tries; None for this user on this machine
    :param settings: without them trash is kept as long as the plan says
    :param objects_per_second: at most so many objects and folders are changed, on average over any second
    :param beside_training: also while the run's training lives
    """
    if plan.bucket != bucket.name:
        raise RetentionRefused(
            "the plan is not applied",
            [error(f"gs://{bucket.name}", f"a plan of bucket {plan.bucket}", f"a plan of {bucket.name}")],
        )
    folder = run_folder(plan.bucket, plan.run)
    # Before the lease is taken, so that a plan that is refused leaves nothing behind.
    sweep_steps.refuse_unsafe(plan)
    bucket.list_level(folder.records_prefix)
    clock.refuse_wrong(bucket)
    settings = settings or SweepSettings(trash_age=trash_age(plan))
    held = HeldRun(bucket, cluster, plan.run, holder or own_name(plan.hash), beside_training=beside_training)
    client = BulkClient(bucket, pace=Pace(objects_per_second))
    with held:
        report = client.run(sweep_steps.sweep(plan, _fenced(settings, held)), before=_renewing(held))
    for line in report.lines():
        log.info("%s", line)
    return report


def undo(
    bucket: BucketClient,
    run: str,
    plan_hash: str,
    *,
    cluster: KubernetesClient | None = None,
    holder: str | None = None,
    settings: SweepSettings | None = None,
    beside_training: bool = False,
) -> UndoReport:
    """Put back what the sweep of a plan took, as far as its trash is there.

    Raises RetentionRefused when there is nothing to put back; otherwise like `apply`.

    :param plan_hash: as the plan has it, `sha256:…`, or the first of its digits, at least 12
    """
    folder = run_folder(bucket.name, run)
    plan_hash = plan_hash.removesuffix("…")
    if not trash.is_hash(plan_hash):
        raise RetentionRefused(
            "no sweep is undone", [error("plan", repr(plan_hash), "a plan's hash, or at least 12 digits of it")]
        )
    client = BulkClient(bucket)
    # Before the lease is taken, so that a mistaken name leaves nothing behind.
    client.run(undo_steps.find(folder, plan_hash))
    clock.refuse_wrong(bucket)
    held = HeldRun(bucket, cluster, run, holder or own_name(plan_hash), purpose="undo", beside_training=beside_training)
    with held:
        steps = undo_steps.undo(folder, plan_hash, _fenced(settings or SweepSettings(), held))
        report = client.run(steps, before=_renewing(held))
    for line in report.lines():
        log.info("%s", line)
    return report


def trash_age(plan: RetentionPlan) -> timedelta:
    """Return how long a plan's run keeps what was swept."""
    seconds = plan.settings.get("leftovers")
    return timedelta(seconds=seconds) if isinstance(seconds, int | float) else SweepSettings().trash_age


def own_name(plan_hash: str) -> str:
    """Return the holder of a sweep from the command line: the same when the same person starts it again."""
    return f"retain|{somebody.user()}|{socket.gethostname()}|{trash.short(plan_hash)}"


def _fenced(settings: SweepSettings, held: HeldRun) -> SweepSettings:
    return replace(settings, fence=held.fence)


def _renewing(held: HeldRun) -> Callable[[Sequence[bulk.Request]], None]:
    def renew(_: Sequence[bulk.Request]) -> None:
        held.renew()

    return renew
