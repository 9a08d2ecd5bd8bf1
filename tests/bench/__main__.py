"""``make bench``: figures beside what users would otherwise pick, measured in one run, written to build/bench."""

from __future__ import annotations

import argparse

from tests.bench import imports

PARTS = {"import": imports.main}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="only this part; all without it")
    chosen = parser.parse_args().part
    for name, run in PARTS.items():
        if chosen in (None, name):
            run()
