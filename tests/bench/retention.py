"""A million objects in a thousand backups: planning and sweeping, beside what one would otherwise use.

One run has 4,096 nodes with data parallelism 16. All contestants ask one server on this machine, at 0 and at 25 ms per
request; what takes long is sampled, and says so. The server's own speed is published beside: it is no contestant's
bottleneck. backup-warden looks at a tree of the same dated folders on a local disk.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import retention_bucket as made
from tests.bench.figures import ratio
from tests.bench.output import REPOSITORY, write

PAGE = 1000
LATENCIES_MS = (0, 25)
# Sampled: deletions one by one, and at the rate of a bucket.
PROVIDER_OBJECTS = 400
FLAT_BACKUPS = 20
BUCKET_RATE = 1000


def main(options: Sequence[str] = ()) -> None:
    """Measure and write build/bench/retention.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench retention", description=__doc__)
    parser.add_argument("--backups", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10, help="backups of the run of 4,096 nodes among them")
    parser.add_argument("--runs", type=int, default=8)
    chosen = parser.parse_args(options)
    runs = made.runs(chosen.backups, chosen.large, chosen.runs)
    figures: dict[str, Any] = {
        "objects": sum(run.shape.objects * len(run.backups) for run in runs),
        "backups": chosen.backups,
        "runs": {run.name: {**vars(run.shape), "backups": len(run.backups)} for run in runs},
        "plan": {},
    }
    shape = [f"--backups={chosen.backups}", f"--large={chosen.large}", f"--runs={chosen.runs}"]
    half = " ".join(f"{run.name}={max(len(run.backups) // 2, 2)}" for run in runs)
    for latency in LATENCIES_MS:
        with tempfile.TemporaryDirectory() as plans, serving(*shape, f"--latency={latency / 1000}") as address:
            figures["plan"][f"{latency}ms"] = planning(address, plans, half, runs, latency)
            figures[f"sweep_folders_{latency}ms"] = sweeping_folders(address, plans)
            print(json.dumps(figures[f"sweep_folders_{latency}ms"]), flush=True)
    figures["replan_requests"] = figures["plan"]["25ms"]["replan_requests"]
    with serving(*shape, "--latency=0.025", "--flat") as address:
        figures["sweep_25ms"] = sweeping_flat(address, runs)
        print(json.dumps(figures["sweep_25ms"]), flush=True)
    figures["backup_warden"] = on_a_tree(runs)
    write("retention.json", figures)


def planning(address: str, plans: str, kept: str, runs: list[made.Run], latency: int) -> dict[str, Any]:
    """Plan all runs, twice, and list everything."""
    reset(address)
    first = contestant("plan", address, plans, kept)
    requests = reset(address)["requests"]
    again = contestant("plan", address, plans, kept)
    requests_again = reset(address)["requests"]
    listing = contestant("listing", address)
    gcsfs = contestant("gcsfs_listing", address, runs[-1].name)
    own = contestant("server", address)
    objects = listing["objects"]
    least = sum(math.ceil(run.shape.entries / PAGE) * len(run.backups) for run in runs)
    found = {
        "everstep_s": round(first["seconds"], 2),
        "full_listing_s": round(listing["seconds"], 2),
        "everstep_to_full_listing": ratio(first["seconds"], listing["seconds"]),
        "requests": sum(requests.values()),
        "requests_by_kind": requests,
        "pages_of_backups": least,
        "requests_beyond_pages_per_run": round((sum(requests.values()) - least) / len(runs), 2),
        "peak_mb": first["peak_mb"],
        "full_listing_peak_mb": listing["peak_mb"],
        "full_listing_requests": math.ceil(objects / PAGE),
        "swept": first["swept"],
        "replan_s": round(again["seconds"], 2),
        "replan_requests": round(sum(requests_again.values()) / len(runs), 2),
        "replan_requests_all_runs": sum(requests_again.values()),
        "gcsfs_objects_per_s": round(gcsfs["objects"] / gcsfs["seconds"]),
        "gcsfs_sampled_objects": gcsfs["objects"],
        "gcsfs_peak_mb": gcsfs["peak_mb"],
        "server_alone_s": round(own["seconds"], 2),
        "server_objects_per_s": round(objects / own["seconds"]),
    }
    print(f"plan, {latency} ms: {json.dumps(found)}", flush=True)
    return found


def sweeping_folders(address: str, plans: str) -> dict[str, Any]:
    """Apply the plans, which sweep half of the bucket, and empty the trash."""
    before = reset(address)
    done = contestant("sweep", address, plans, "1000")
    after = reset(address)
    requests = after["requests"]
    polls = requests.pop("poll", 0)
    objects = before["objects"] - after["objects"]
    return {
        "seconds": round(done["seconds"], 2),
        "backups": done["backups"],
        "objects": objects,
        "objects_per_s": round(objects / done["seconds"]),
        "requests_per_backup": round(sum(requests.values()) / done["backups"], 2),
        "requests_by_kind": requests,
        "polls": polls,
        "peak_mb": done["peak_mb"],
        "server_s_per_object": 0.0,
        "server_note": "this server renames and deletes folders at once; Google's own time per object comes on top",
    }


def sweeping_flat(address: str, runs: list[made.Run]) -> dict[str, Any]:
    """Delete object by object at the bucket's rate, and beside that by the provider's operator and by gcsfs."""
    run = runs[1]
    kept = f"{run.name}={len(run.backups) - min(FLAT_BACKUPS, len(run.backups) // 2)}"
    with tempfile.TemporaryDirectory() as plans:
        contestant("plan", address, plans, kept)
        before = reset(address)
        ours = contestant("sweep", address, plans, str(BUCKET_RATE))
    after = reset(address)
    assert before["objects"] - after["objects"] == ours["objects"]
    theirs = contestant("provider", address, f"{runs[2].name}/{runs[2].backups[-1]}/", str(PROVIDER_OBJECTS))
    gcsfs = contestant("gcsfs_deletion", address, f"{runs[2].name}/{runs[2].backups[-2]}")
    own = contestant("server_deletion", address, f"{runs[2].name}/{runs[2].backups[-3]}/")
    everstep = ours["objects"] / ours["seconds"]
    provider = theirs["objects"] / theirs["seconds"]
    return {
        "everstep_objects_per_s": round(everstep),
        "configured_objects_per_s": BUCKET_RATE,
        "most_objects_in_any_second": most_in_a_second(after["deleted_at"]),
        "everstep_sampled_objects": ours["objects"],
        "everstep_requests": sum(after["requests"].values()),
        "everstep_peak_mb": ours["peak_mb"],
        "provider_objects_per_s": round(provider, 1),
        "provider_sampled_objects": theirs["objects"],
        "provider_peak_mb": theirs["peak_mb"],
        "everstep_to_provider": ratio(everstep, provider),
        "gcsfs_objects_per_s": round(gcsfs["objects"] / gcsfs["seconds"], 1),
        "gcsfs_sampled_objects": gcsfs["objects"],
        "server_objects_per_s": round(own["objects"] / own["seconds"]),
        "hours_for_half_of_the_bucket": {
            "everstep": round(before["objects"] / 2 / everstep / 3600, 2),
            "provider": round(before["objects"] / 2 / provider / 3600, 2),
        },
    }


def most_in_a_second(deleted: Sequence[Sequence[float]]) -> int:
    """Return how many objects at most went within any second, by (time, objects) of each request."""
    most = inside = first = 0
    for time, objects in deleted:
        inside += int(objects)
        while deleted[first][0] <= time - 1:
            inside -= int(deleted[first][1])
            first += 1
        most = max(most, inside)
    return most


def on_a_tree(runs: list[made.Run]) -> dict[str, Any]:
    """Let backup-warden look at a tree of the same dated folders."""
    with tempfile.TemporaryDirectory() as tree:
        for run in runs:
            for name in run.backups:
                Path(tree, run.name, name).mkdir(parents=True)
        found = contestant("backup_warden", tree)
    return {**found, "note": "a local disk; it looks into no backup, so it can't tell which are complete"}


def contestant(*arguments: str) -> dict[str, Any]:
    """Run one contestant and return its figures."""
    command = [sys.executable, "-m", "tests.bench.retention_contestants", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Address of a server, for as long as the block runs."""
    command = [sys.executable, "-m", "tests.bench.retention_server", *options]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


def reset(address: str) -> dict[str, Any]:
    """Return what the server counted since the last time."""
    request = urllib.request.Request(f"{address}/_bench", method="DELETE")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
