"""``everstep collect SUBJECT --to DIRECTORY``: what a diagnosis needs, as a bundle of files without secrets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli.doctor import SUBJECT_HELP, add_ways, read_evidence

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = (
    "Writes what a diagnosis of a run or a cluster needs into a directory of JSON files, to be looked at elsewhere by "
    "`everstep doctor --bundle`. Secrets are removed, Secret objects are never read."
)


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("collect", help="write what a diagnosis needs to files", description=DESCRIPTION)
    parser.add_argument("subject", metavar="SUBJECT", help=SUBJECT_HELP)
    parser.add_argument("--to", type=Path, required=True, metavar="DIRECTORY", help="a directory that is not there yet")
    add_ways(parser)
    parser.set_defaults(run=collect)


def collect(arguments: argparse.Namespace) -> int:
    """Writes the bundle, and says what could not be read."""
    from everstep.doctor import bundle
    from everstep.doctor.diagnose import blind_spots

    bundle.refuse_existing(arguments.to)
    evidence = read_evidence(arguments)
    written = bundle.write(evidence, arguments.to)
    count = sum(len(found) for found in evidence.objects.values())
    print(f"{written}: {count} objects, {len(evidence.logs)} ends of logs; secrets are removed")
    for spot in blind_spots(evidence):
        print(f"could not be read: {spot}")
    return 0
