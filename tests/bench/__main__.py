"""``make bench``: figures beside what users would otherwise pick, measured in one run, written to build/bench."""

from __future__ import annotations

from tests.bench import imports

if __name__ == "__main__":
    imports.main()
