"""`python -m everstep_sandbox sandbox …`: the sandbox's verbs without the rest of the `everstep` command."""

from __future__ import annotations

import argparse
import sys

from everstep_sandbox.cli import add_commands


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox")
    add_commands(parser.add_subparsers(dest="verb", metavar="VERB", required=True))
    arguments = parser.parse_args()
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
