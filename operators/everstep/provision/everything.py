"""All steps of a cluster file in the order in which they need each other, and carrying them out without Airflow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from everstep.clients.errors import RemoteError
from everstep.provision.changes import Mode, Step, Waiting
from everstep.provision.steps import Report, advance, survey, unanswered
from everstep.spec.findings import Finding, FindingsError, error

if TYPE_CHECKING:
    from everstep.provision.site import Site


def all_steps(site: Site, *, recreate: bool = False, force: bool = False) -> list[Step]:
    """Return every step, from APIs to the driver on each node.

    :param recreate: a CheckpointConfiguration that differs is deleted and made anew, which wipes its RAM disks
    :param force: also while a JobSet uses them; and recreate nodes that lack the GKE metadata server while somebody
        runs on them
    """
    from everstep.provision.cloud.steps import cloud_steps
    from everstep.provision.in_cluster.steps import in_cluster_steps
    from everstep.provision.way_in import WayInStep

    return [*cloud_steps(site, force=force), WayInStep(site), *in_cluster_steps(site, recreate=recreate, force=force)]


def provision(site: Site, steps: Iterable[Step], mode: Mode, tell: Callable[[str], None]) -> Report:
    """Look at the steps, and in mode `apply` carry them out, waiting here. Raises FindingsError where they end."""
    if mode is not Mode.APPLY:
        return survey(steps, mode)
    report = Report(mode)
    for step in steps:
        try:
            while (waiting := advance(step, report, tell)) is not None:
                tell(f"{step.title}: {_waited(site, waiting)}")
        except RemoteError as failure:
            raise FindingsError(f"{step.title} can't go on", [unanswered(step, failure)]) from failure
    return report


def _waited(site: Site, waiting: Waiting) -> str:
    from everstep.provision.waits import wait_for

    event = asyncio.run(wait_for(waiting, site.access(), time.time() + waiting.seconds))
    if event["kind"] != "done":
        told = [Finding.of(each) for each in event.get("findings", ())] or [error(waiting.what, event["message"])]
        why = f": {event['title']}" if "title" in event else ""
        raise FindingsError(f"{waiting.what} did not end well{why}", [*told, *_why(site)])
    return str(event["message"])


def _why(site: Site) -> list[Finding]:
    """Return what the doctor says of the cluster."""
    from everstep.doctor.live import ATTACHED_LOG_LINES, ATTACHED_SECONDS, examine_site, reasons

    found = reasons(lambda: examine_site(site, seconds=ATTACHED_SECONDS, log_lines=ATTACHED_LOG_LINES))
    return [Finding(each.severity, each.object, each.cause, remedy="; ".join(each.remedy)) for each in found]
