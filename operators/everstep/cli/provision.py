"""``everstep provision CLUSTER_FILE``: looks at, prints or makes all that a cluster file describes, without Airflow."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.provision.steps import Report

DESCRIPTION = (
    "Prepares a project for multi-tier checkpointing as a cluster file describes it. Looks only, unless told to apply. "
    "Uses your own credentials (gcloud auth application-default login) and your kubeconfig."
)


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("provision", help="prepare a cluster for checkpointing", description=DESCRIPTION)
    parser.add_argument("cluster_file", type=Path, help="a cluster file, such as dags/clusters/tokyo.yaml")
    parser.add_argument(
        "--mode",
        choices=("check", "emit", "apply"),
        default="check",
        help="look, print a shell script that does it, or do it",
    )
    parser.add_argument("--terraform", action="store_true", help="with --mode emit: Terraform instead of a script")
    parser.add_argument(
        "--recreate",
        action="store_true",
        help="delete and make anew a CheckpointConfiguration that differs; wipes the RAM disks of its nodes",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="recreate what is in use: with --recreate configurations, and nodes that lack the GKE metadata server",
    )
    parser.add_argument(
        "--kubeconfig",
        default=os.environ.get("KUBECONFIG", "~/.kube/config"),
        help="the cluster (default: $KUBECONFIG, else ~/.kube/config)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=provision)


def provision(arguments: argparse.Namespace) -> int:
    """Prints what there is, what was done and what is left; 1 if errors were found."""
    from everstep.provision import emission
    from everstep.provision.changes import Mode
    from everstep.provision.everything import all_steps
    from everstep.provision.everything import provision as carry_out
    from everstep.provision.site import load_site
    from everstep.spec.findings import errors_of

    kubeconfig = str(Path(arguments.kubeconfig).expanduser())

    def tell(line: str) -> None:
        # Progress goes aside, so that the report can be piped.
        print(line, file=sys.stderr, flush=True)

    try:
        with load_site(arguments.cluster_file, beside=Path.cwd(), kubeconfig=kubeconfig) as site:
            steps = all_steps(site, recreate=arguments.recreate, force=arguments.force)
            report = carry_out(site, steps, Mode(arguments.mode), tell)
            spec = site.spec
    except KeyboardInterrupt:
        tell("interrupted: what is under way in Google Cloud goes on; run it again to join it")
        raise
    if arguments.json:
        print(json.dumps(report.as_dict(), indent=1))
    elif report.mode is Mode.EMIT:
        file = str(arguments.cluster_file)
        print(emission.declarations(report, file) if arguments.terraform else emission.script(report, spec, file))
    else:
        _print(report)
    return 1 if errors_of(report.findings) else 0


def _print(report: Report) -> None:
    from everstep.provision.changes import Mode
    from everstep.spec.findings import errors_of

    for finding in report.findings:
        print(finding)
    for change in report.left:
        print(change)
    if report.mode is Mode.APPLY:
        print(f"{len(report.done)} changes made: all is as the cluster file says")
        return
    if report.left or report.waiting or errors_of(report.findings):
        print(f"{len(report.findings)} findings, {len(report.left)} changes left to make")
    else:
        print(f"{len(report.findings)} findings, nothing left to do: all is as the cluster file says")
