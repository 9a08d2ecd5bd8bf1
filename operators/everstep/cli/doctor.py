"""``everstep doctor SUBJECT``: what is wrong with a run or a cluster, why, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.doctor.evidence import Evidence, Target
    from everstep.doctor.gather import Sources

DESCRIPTION = (
    "Says what is wrong with a run or a cluster, why, and what to do about it; changes nothing. Uses your kubeconfig "
    "and your own credentials (gcloud auth application-default login). What it may not read it says, and goes on."
)
SUBJECT_HELP = "a run file, a cluster file, or the name of a run (its JobSet)"


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("doctor", help="say what is wrong, why, and what to do", description=DESCRIPTION)
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("subject", nargs="?", metavar="SUBJECT", help=SUBJECT_HELP)
    subject.add_argument("--bundle", type=Path, metavar="DIRECTORY", help="what `everstep collect` wrote, instead")
    add_ways(parser)
    parser.add_argument("--json", action="store_true", help="print the diagnoses as JSON")
    parser.set_defaults(run=doctor)


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say how a cluster is reached."""
    parser.add_argument(
        "--kubeconfig",
        default=os.environ.get("KUBECONFIG", "~/.kube/config"),
        help="the cluster (default: $KUBECONFIG, else ~/.kube/config)",
    )
    parser.add_argument("--namespace", default="default", help="of a run that is given by name (default: default)")


def doctor(arguments: argparse.Namespace) -> int:
    """Prints every diagnosis; 1 if one of them is an error."""
    from everstep.doctor import bundle
    from everstep.doctor.diagnose import blind_spots, diagnose
    from everstep.doctor.live import report
    from everstep.spec.findings import Severity

    evidence = bundle.read(arguments.bundle) if arguments.bundle is not None else read_evidence(arguments)
    found = diagnose(evidence)
    if arguments.json:
        document = {
            "target": evidence.target.as_dict(),
            "taken": evidence.taken.isoformat(),
            "diagnoses": [each.as_dict() for each in found],
            "not_looked_at": blind_spots(evidence),
        }
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(report(evidence, found)))
    return 1 if any(each.severity is Severity.ERROR for each in found) else 0


def read_evidence(arguments: argparse.Namespace) -> Evidence:
    """Return what can be read of the subject, without secrets. Raises FindingsError when there is no such subject."""
    from everstep.doctor.gather import gather
    from everstep.doctor.redaction import redacted

    with _sources(arguments) as sources:
        return redacted(gather(_target(arguments, sources), sources))


@contextmanager
def _sources(arguments: argparse.Namespace) -> Iterator[Sources]:
    from everstep.clients.access import ClusterAccess, GoogleAccess, StorageAccess
    from everstep.doctor.live import opened

    kubeconfig = Path(arguments.kubeconfig).expanduser()
    with opened(ClusterAccess.of_kubeconfig(kubeconfig), StorageAccess(), GoogleAccess()) as sources:
        yield sources


def _target(arguments: argparse.Namespace, sources: Sources) -> Target:
    from everstep.doctor.evidence import Target
    from everstep.spec import files
    from everstep.spec.cluster import ClusterSpec
    from everstep.spec.parsing import read_yaml
    from everstep.spec.training import TrainingSpec

    subject: str = arguments.subject
    if not (subject.endswith((".yaml", ".yml")) or Path(subject).is_file()):
        return _named(subject, arguments.namespace, sources)
    found = files.locate(subject, Path.cwd())
    if "checkpoint_configurations" in read_yaml(found):
        return Target.of_cluster(ClusterSpec.from_yaml(found))
    return Target.of_run(TrainingSpec.from_yaml(found))


def _named(name: str, namespace: str, sources: Sources) -> Target:
    from everstep.clients.resources import JOBSETS
    from everstep.doctor.evidence import Target
    from everstep.spec.findings import FindingsError, error

    assert sources.cluster is not None, "the command always names a kubeconfig"
    jobset = sources.cluster.find(JOBSETS, name, namespace)
    if jobset is None:
        raise FindingsError(
            f"there is no run {name!r} to look at",
            [
                error(
                    f"JobSet {namespace}/{name}",
                    "not there",
                    "the name of a run, or a run file",
                    "kubectl get jobsets -A; given a run file, the doctor also looks where no JobSet is",
                )
            ],
        )
    return Target.of_jobset(jobset)
