"""Entry of the ``everstep`` command: finds the verbs, parses, runs one.

A verb is a function ``add_commands(subparsers)`` under the entry point group ``everstep.commands``; it adds its parser
and sets ``run``, a function of the parsed arguments that returns the exit code. So other packages add verbs, and a verb
whose libraries are not installed costs nothing.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from everstep.clients.errors import Forbidden, RemoteError
from everstep.spec.findings import FindingsError

GROUP = "everstep.commands"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 = done, 1 = refused or failed with findings, 2 = wrong usage."""
    parser = argparse.ArgumentParser(prog="everstep", description="Keeps large training jobs on GKE stepping forward.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for entry_point in sorted(entry_points(group=GROUP), key=lambda found: found.name):
        entry_point.load()(verbs)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except FindingsError as refused:
        print(refused, file=sys.stderr)
        return 1
    except RemoteError as failure:
        print(f"error: {failure.message}{_advice(failure)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has had enough.
        _end_output()
        return 0
    except OSError as failure:
        if failure.errno not in _FULL:
            raise
        _end_output()
        print(f"error: nothing more can be written: {failure.strerror}", file=sys.stderr)
        return 1
    return code


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _end_output() -> None:
    # Without this, the flush at exit would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _advice(failure: RemoteError) -> str:
    if isinstance(failure, Forbidden):
        return "; remedy: grant your identity what it is refused (everstep permissions shows what each needs)"
    return ""


if __name__ == "__main__":
    sys.exit(main())
