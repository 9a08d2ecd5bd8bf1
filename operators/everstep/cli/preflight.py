"""``everstep preflight RUN_FILE``: the checks before a launch, without Airflow."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = "Checks everything about a run that can be known before it is launched; changes nothing."

# Somebody waits for the answer.
PATIENCE_SECONDS = 15.0


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("preflight", help="check a run before it is launched", description=DESCRIPTION)
    parser.add_argument("run_file", type=Path, help="a run file, such as dags/runs/stdlib-lm.yaml")
    parser.add_argument(
        "--kubeconfig",
        default=os.environ.get("KUBECONFIG", "~/.kube/config"),
        help="the cluster (default: $KUBECONFIG, else ~/.kube/config); the bucket is reached with your own credentials",
    )
    parser.set_defaults(run=preflight)


def preflight(arguments: argparse.Namespace) -> int:
    """Prints every finding; 1 if one of them is an error."""
    from functools import partial

    from everstep.clients.access import ClusterAccess, GoogleAccess, StorageAccess
    from everstep.provision import preflight as checks
    from everstep.spec.findings import errors_of
    from everstep.spec.training import TrainingSpec

    spec = TrainingSpec.from_yaml(arguments.run_file, beside=Path.cwd())
    access = ClusterAccess.of_kubeconfig(Path(arguments.kubeconfig).expanduser(), spec.cluster)
    google = (
        None if spec.cluster_spec.endpoint == "kubeconfig" else partial(GoogleAccess().open, patience=PATIENCE_SECONDS)
    )
    with access.open(patience=PATIENCE_SECONDS) as cluster:
        bucket = StorageAccess().open(spec.bucket, patience=PATIENCE_SECONDS)
        findings = checks.check(checks.Subject(spec, cluster, bucket, google=google))
    for finding in findings:
        print(finding)
    errors = len(errors_of(findings))
    print(f"{spec.name}: {len(findings)} findings, {errors} of them forbid a launch")
    return 1 if errors else 0
