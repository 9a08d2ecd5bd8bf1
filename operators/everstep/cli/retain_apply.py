"""``everstep retain apply`` and ``everstep retain undo``: sweeping what a saved plan says, and having it back."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.clients.kubernetes import KubernetesClient
    from everstep.clients.storage import BucketClient

APPLY = """Applies exactly the saved plan, or goes on with it after a crash. What changed since is skipped and reported.
In a bucket with folders, what goes can be had back for 48 hours; then the next sweep empties the trash."""
UNDO = """Puts back what the sweep of a plan took, as far as its trash was not emptied yet."""


def add_verbs(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both verbs."""
    applying = verbs.add_parser("apply", help="sweep what a saved plan says", description=APPLY)
    applying.add_argument("plan", type=Path, metavar="FILE", help="saved by `everstep retain plan --out FILE`")
    applying.add_argument("--empty-now", action="store_true", help="delete at once; nothing can be had back")
    applying.add_argument(
        "--objects-per-second",
        type=_rate,
        default=500.0,
        metavar="N",
        help="change at most so many (default: 500, half of what a new bucket takes)",
    )
    applying.set_defaults(run=apply)
    undoing = verbs.add_parser("undo", help="have back what a sweep took", description=UNDO)
    undoing.add_argument("run_name", metavar="RUN", help="a run file, or gs://BUCKET/RUN")
    undoing.add_argument("--plan", required=True, metavar="HASH", help="the plan's hash, or its first 12 digits")
    undoing.set_defaults(run=undo)
    for parser in (applying, undoing):
        parser.add_argument(
            "--kubeconfig", metavar="FILE", help="the run's cluster, to see at once whether its training has ended"
        )
        parser.add_argument(
            "--beside-training",
            action="store_true",
            help="also while the training lives; what its replicator would restore stays in any case",
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
        parser.add_argument("--endpoint", default="", help="address of the storage API (default: Google's)")


def apply(arguments: argparse.Namespace) -> int:
    """Prints what became of each part of the plan; 1 if objects are left that the bucket does not let go."""
    from everstep.retain import plan as plans
    from everstep.retain import sweep
    from everstep.retain.plan import RetentionRefused
    from everstep.retain.sweep_report import SweepSettings
    from everstep.spec.findings import error

    try:
        content = arguments.plan.read_bytes()
    except OSError as failure:
        remedy = f"make one: everstep retain plan RUN --out {arguments.plan}"
        raise RetentionRefused(
            "no plan is applied", [error(str(arguments.plan), failure.strerror or "unreadable", "a plan", remedy)]
        ) from None
    plan = plans.verify(content, where=str(arguments.plan))
    report = sweep.apply(
        _bucket(arguments, plan.bucket),
        plan,
        cluster=_cluster(arguments),
        settings=SweepSettings(trash_age=sweep.trash_age(plan), empty_now=arguments.empty_now, told=_told),
        objects_per_second=arguments.objects_per_second,
        beside_training=arguments.beside_training,
    )
    print(json.dumps(report.as_dict(), indent=1) if arguments.json else "\n".join(report.lines()))
    return 1 if report.left else 0


def undo(arguments: argparse.Namespace) -> int:
    """Prints what was put back; 1 if something was not."""
    from everstep.cli.retain import run_named
    from everstep.retain import sweep
    from everstep.retain.sweep_report import SweepSettings

    folder, _ = run_named(arguments.run_name)
    report = sweep.undo(
        _bucket(arguments, folder.bucket),
        folder.run,
        arguments.plan,
        cluster=_cluster(arguments),
        settings=SweepSettings(told=_told),
        beside_training=arguments.beside_training,
    )
    print(json.dumps(report.as_dict(), indent=1) if arguments.json else "\n".join(report.lines()))
    return 1 if report.skipped else 0


def _bucket(arguments: argparse.Namespace, name: str) -> BucketClient:
    from everstep.clients.access import StorageAccess

    return StorageAccess(endpoint=arguments.endpoint).open(name)


def _cluster(arguments: argparse.Namespace) -> KubernetesClient | None:
    from everstep.clients.access import ClusterAccess

    if arguments.kubeconfig is None:
        return None
    return ClusterAccess.of_kubeconfig(Path(arguments.kubeconfig).expanduser()).open()


def _told(line: str) -> None:
    # Progress goes aside, so that the report can be piped.
    print(line, file=sys.stderr, flush=True)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of objects per second, more than 0")
    return rate
