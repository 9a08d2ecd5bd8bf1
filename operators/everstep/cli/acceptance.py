"""``everstep acceptance``: does a real project behave as Everstep relies on? An hour on cheap CPU nodes tells."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = (
    "Judges, item by item, whether a cluster and its bucket behave as Everstep relies on: preconditions and folders of "
    "Cloud Storage, the checkpoint driver and its replicator, JobSet, priorities. Runs a small Python program on the "
    "nodes of one CheckpointConfiguration, which have to be free; CPU nodes do. Leaves nothing behind."
)


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    from everstep.acceptance.run import backup_minutes_of

    parser = subparsers.add_parser("acceptance", help="judge a real cluster", description=DESCRIPTION)
    parser.add_argument("--cluster", required=True, type=Path, help="a cluster file, such as dags/clusters/tokyo.yaml")
    parser.add_argument("--configuration", help="CheckpointConfiguration whose nodes are used (default: the first)")
    parser.add_argument("--image", default="python:3.12-slim", help="image with Python 3.9 or newer")
    parser.add_argument("--backup-minutes", type=backup_minutes_of, default=1.0, help="asked of the replicator")
    parser.add_argument("--save-seconds", type=float, default=5.0, help="between two saves of the probe")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds that anything may take")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", "~/.kube/config"))
    parser.add_argument("--json", type=Path, help="also write the verdicts to this file")
    parser.set_defaults(run=acceptance)


def acceptance(arguments: argparse.Namespace) -> int:
    """Prints each verdict as it comes; 1 if an item differs."""
    from everstep.acceptance.items import tally
    from everstep.acceptance.run import judge
    from everstep.provision.site import load_site
    from everstep.provision.way_in import WayInStep
    from everstep.spec.findings import raise_on_errors

    kubeconfig = str(Path(arguments.kubeconfig).expanduser())
    with load_site(arguments.cluster, beside=Path.cwd(), kubeconfig=kubeconfig) as site:
        spec = site.spec
        # What is tried costs nodes of the cluster, and may preempt pods on them: not of another one.
        raise_on_errors(f"cluster {spec.name} can't be judged", WayInStep(site).look().findings)
        record = judge(
            site.kubernetes(),
            site.storage_access.open,
            arguments.configuration or next(iter(spec.checkpoint_configurations)),
            namespace=spec.namespace,
            image=arguments.image,
            backup_minutes=arguments.backup_minutes,
            save_seconds=arguments.save_seconds,
            patience=arguments.patience,
            tell=lambda line: print(line, flush=True),
        )
    print(f"{spec.name}: {tally(record.verdicts)}")
    if arguments.json is not None:
        aside = arguments.json.with_suffix(".tmp")
        aside.write_text(json.dumps([verdict.as_dict() for verdict in record.verdicts], indent=1) + "\n")
        aside.replace(arguments.json)
    return 1 if record.differing() else 0
