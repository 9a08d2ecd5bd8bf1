"""``make bench``: figures beside what users would otherwise pick, measured in one run, written to build/bench."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from tests.bench import handshake, imports, load, retention, watch

PARTS: dict[str, Callable[[Sequence[str]], None]] = {
    "import": imports.main,
    "handshake": handshake.main,
    "watch": watch.main,
    "load": load.main,
    "retention": retention.main,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="only this part; all without it")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the part: PART --help lists them")
    chosen = parser.parse_args()
    # What the parts start ends with the blocks that started it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        for name, run in PARTS.items():
            if chosen.part in (None, name):
                run(chosen.options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
