"""What runs in each pod of an acceptance test: a training job without training, in the standard library alone.

It makes the replicator's handshake and saves small files, and prints what it sees as one JSON object per line. Its
text is the container's command, so that any image with Python does. The pod's annotation tells it how it has to end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

DIRECTORY = Path(os.environ.get("PROBE_DIRECTORY", "/checkpoint"))
POD_INFO = Path(os.environ.get("PROBE_POD_INFO", "/etc/probe"))
PATIENCE = float(os.environ.get("PROBE_PATIENCE_SECONDS", "600"))
END = "everstep.dev/acceptance-end"
POLL = 0.05


def tell(item: str, **seen: Any) -> None:
    """Print one observation."""
    # One write, so that lines of one container never mix.
    sys.stdout.write(json.dumps({"item": item, "at": time.time(), **seen}) + "\n")
    sys.stdout.flush()


def wait_for(what: str, look: Any) -> Any:
    """Return what `look()` gives once it is something. Ends the probe when that takes too long."""
    started = time.monotonic()
    while True:
        with contextlib.suppress(FileNotFoundError):
            found = look()
            if found:
                return found
        if time.monotonic() - started > PATIENCE:
            tell("gave-up", what=what, there=sorted(os.listdir(DIRECTORY)))
            os._exit(3)
        time.sleep(POLL)


def hand_over(rank: int, nodes: int) -> None:
    """Write the replicator's configuration in one piece, and wait until it has been taken."""
    config = DIRECTORY / "replicator.yaml"
    stale = config.exists()
    wait_for("the earlier replicator.yaml to be taken", lambda: not config.exists())
    aside = DIRECTORY / "replicator.yaml.tmp"
    aside.write_text(
        f"job-name: '{os.environ['PROBE_RUN']}'\n"
        "framework: pytorch.distributed\n"
        f"node-rank: {rank}\n"
        f"nodes: {nodes}\n"
        f"peer-ranks: [{(rank + nodes // int(os.environ['PROBE_SLICES'])) % nodes}]\n"
        f"backup-interval-minutes: {os.environ['PROBE_BACKUP_MINUTES']}\n"
    )
    started = time.monotonic()
    os.replace(aside, config)
    wait_for("replicator.yaml to be taken", lambda: not config.exists())
    tell("config-taken", seconds=time.monotonic() - started, stale=stale)


def restored(rank: int) -> int:
    """Wait for the marker of what is restored, tell of it, and return its step."""
    marker = wait_for("a .restore marker", lambda: sorted(DIRECTORY.glob("*.restore")))[0]
    found = re.search(r"-s(\d+)-n(\d+)-w(\d+)\.restore$", marker.name)
    content = None
    if marker.is_dir():
        content = (marker / f"node-{rank}").read_text() if (marker / f"node-{rank}").exists() else "foreign"
    tell(
        "restored",
        name=marker.name,
        link=os.readlink(marker) if marker.is_symlink() else None,
        size=None if marker.is_dir() else marker.stat().st_size,
        content=content,
        prerestore=(DIRECTORY / "replicator.prerestore").read_text().strip(),
        errors=(DIRECTORY / "replicator.errors").exists(),
    )
    return int(found.group(1)) if found else 0


def save(step: int, rank: int) -> None:
    """Save one step, and tell what the replicator makes of it."""
    aside = DIRECTORY / f"{step}.tmp-of-probe"
    aside.mkdir()
    (aside / f"node-{rank}").write_text(f"step {step} of node {rank}")
    started = time.monotonic()
    os.replace(aside, DIRECTORY / str(step))
    meta = DIRECTORY / f"{os.environ['PROBE_RUN']}-s{step}-n{rank}-w0.meta"
    digest = wait_for(f"the meta of step {step}", meta.read_text)
    tell(
        "saved",
        step=step,
        seconds=time.monotonic() - started,
        digest=digest,
        data=(DIRECTORY / f"{digest}.data").is_dir(),
        renamed=not (DIRECTORY / str(step)).is_dir(),
    )


def asked_to_end() -> str:
    """Return how the pod's annotation says that it has to end: empty, `fail` or `done`."""
    for line in (POD_INFO / "annotations").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == END:
            return str(json.loads(value))
    return ""


def main() -> int:
    """Take part in one attempt; 75 asks for a restart, as a job whose peer is lost does."""
    tell("started", node=os.environ["PROBE_NODE"], index=os.environ["PROBE_INDEX"])
    info = wait_for("jax-init-info.txt", (DIRECTORY / "jax-init-info.txt").read_text)
    rank = int(info.split("\n")[0])
    tell("rank-file", text=info, rank=rank)
    hand_over(rank, int(os.environ["PROBE_NODES"]))
    step = restored(rank)
    end = ""
    while not end:
        step += 1
        save(step, rank)
        until = time.monotonic() + float(os.environ["PROBE_SAVE_SECONDS"])
        while not end and time.monotonic() < until:
            end = asked_to_end()
            time.sleep(POLL)
    tell("ended", how=end, there=sorted(os.listdir(DIRECTORY)), step=step)
    return 75 if end == "fail" else 0


if __name__ == "__main__":
    sys.exit(main())
