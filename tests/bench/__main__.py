"""``make bench``: figures beside what users would otherwise pick, measured in one run, written to build/bench."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.bench import handshake, imports, watch

PARTS = {"import": imports.main, "handshake": handshake.main, "watch": watch.main}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="only this part; all without it")
    chosen, options = parser.parse_known_args()
    if options and chosen.part != "watch":
        parser.error(f"only the watch part takes options, not {' '.join(options)}")
    # What the parts start ends with the blocks that started it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        for name, run in PARTS.items():
            if chosen.part in (None, name):
                run(options) if name == "watch" else run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
