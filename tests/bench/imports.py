"""What it costs to read a DAG file or an operator module, beside the Google provider's GKE operators.

Airflow reads DAG files again and again, and a worker imports them for every task. Each figure is what a fresh process
spends beyond Airflow's own import, the median of several processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "import.json"
ROUNDS = 3
HEAVY = ("google", "kubernetes", "kubernetes_asyncio", "gcloud", "jax", "orbax")
OURS = (
    "everstep.provision.operators",
    "everstep.launch.operator",
    "everstep.watch.triggers",
    "everstep.watch.sensors",
    "everstep.resume.gate",
    "everstep.retain.operator",
)
PROVIDER = (
    "airflow.providers.google.cloud.operators.kubernetes_engine",
    "airflow.providers.google.cloud.triggers.kubernetes_engine",
    "airflow.providers.google.cloud.sensors.gcs",
)

PROBE = """
import json, resource, runpy, sys, time
from airflow.providers.common.compat.sdk import DAG, BaseOperator, Param
import airflow.triggers.base, pydantic, yaml
known = {name.split(".")[0] for name in sys.modules}
before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
runpy.run_path(sys.argv[1]) if sys.argv[1].endswith(".py") else __import__(sys.argv[1])
spent = time.perf_counter() - before
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
heavy = sorted(({name.split(".")[0] for name in sys.modules} - known) & set(sys.argv[2].split(",")))
print(json.dumps({"ms": spent * 1000, "mb": grown / 1024, "heavy_modules": heavy}))
"""


def measure(target: str) -> dict[str, Any]:
    """Median cost of one DAG file (a path) or module (a name) over fresh processes."""
    rounds = []
    for _ in range(ROUNDS):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, target, ",".join(HEAVY)], check=True, capture_output=True, text=True
        )
        rounds.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        "ms": round(statistics.median(one["ms"] for one in rounds), 1),
        "mb": round(statistics.median(one["mb"] for one in rounds), 1),
        "heavy_modules": rounds[0]["heavy_modules"],
    }


def main() -> None:
    dag_files = sorted((REPOSITORY / "dags").glob("*.py"))
    figures = {
        "dags": {path.name: told("DAG file", path.name, str(path)) for path in dag_files},
        "modules": {name: told("module", name, name) for name in OURS},
        "provider": {name: told("provider", name, name) for name in PROVIDER},
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(figures, indent=2) + "\n")
    slowest = max(cost["ms"] for cost in figures["dags"].values())
    cheapest = min(cost["ms"] for cost in figures["provider"].values())
    print(f"the slowest DAG file costs {slowest / cheapest:.2f} of the cheapest provider module")
    print(f"written to {OUTPUT.relative_to(REPOSITORY)}")


def told(kind: str, name: str, target: str) -> dict[str, Any]:
    """Measure one target and say at once what it costs."""
    cost = measure(target)
    heavy = ", ".join(cost["heavy_modules"]) or "none"
    print(f"{kind:9} {name:62} {cost['ms']:8.1f} ms {cost['mb']:7.1f} MB  heavy: {heavy}", flush=True)
    return cost
