"""``everstep schema run|cluster``: the JSON schemas of run and cluster files, for editors."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("schema", help="print the JSON schema of run or cluster files")
    parser.add_argument("kind", choices=("run", "cluster"))
    parser.set_defaults(run=schema)


def schema(arguments: argparse.Namespace) -> int:
    """Prints one schema."""
    from everstep.spec.schema import cluster_schema, run_schema

    print(json.dumps(run_schema() if arguments.kind == "run" else cluster_schema(), indent=2))
    return 0
