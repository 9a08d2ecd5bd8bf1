"""What it costs to read a DAG file or an operator module, beside the Google provider's GKE operators.

Airflow reads DAG files again and again, each time in a fork of its DAG processor. So each figure is what a fresh fork
spends of a process that has imported what the DAG processor holds by then: the processor itself, and the modules of
Airflow that the DAG file names (`[dag_processor] parsing_pre_import_modules`). Medians over several forks; memory is
the growth of what is resident.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.output import REPOSITORY, write

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
# Nothing of Everstep: what any DAG file costs in the same process.
BARE_DAG = """
from airflow.providers.common.compat.sdk import DAG, BaseOperator

with DAG("bare", schedule=None):
    BaseOperator(task_id="task")
"""

PROBE = """
import importlib, json, os, runpy, sys, time
import airflow.dag_processing.processor
import airflow.providers.common.compat.sdk
from airflow.utils.file import iter_airflow_imports

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def probe(target, heavy):
    is_file = target.endswith(".py")
    for name in iter_airflow_imports(target) if is_file else ():
        importlib.import_module(name)
    before = set(sys.modules)
    memory, started = resident(), time.perf_counter()
    runpy.run_path(target) if is_file else importlib.import_module(target)
    seconds, grown = time.perf_counter() - started, resident() - memory
    loaded = sorted({name.split(".")[0] for name in set(sys.modules) - before} & set(heavy))
    return {"ms": seconds * 1000, "mb": grown / 2**20, "heavy_modules": loaded}

for line in sys.stdin:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(write, "w") as answer:
            json.dump(probe(*json.loads(line)), answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        print(answer.read(), flush=True)
    os.waitpid(child, 0)
"""


class Prober:
    """A process like Airflow's DAG processor, which forks one for each measurement."""

    def __init__(self, home: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROBE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AIRFLOW_HOME": home},
        )

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self, target: str, rounds: int = 5) -> dict[str, Any]:
        """Return the median cost of one DAG file (a path) or module (a name).

        A round before them, which does not count, leaves compiled files and a warm page cache, as Airflow's own would.
        """
        counted = [self._once(target) for _ in range(1 + rounds)][1:]
        return {
            "ms": round(statistics.median(one["ms"] for one in counted), 1),
            "mb": round(statistics.median(one["mb"] for one in counted), 2),
            "heavy_modules": counted[0]["heavy_modules"],
        }

    def _once(self, target: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([target, HEAVY]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.strip():
            raise RuntimeError(f"{target} could not be imported: see the traceback above")
        found: dict[str, Any] = json.loads(answer)
        return found


def main(options: Sequence[str] = ()) -> None:
    """Measure all, print rows as they come, and write build/bench/import.json."""
    argparse.ArgumentParser(prog="python -m tests.bench import", description=__doc__).parse_args(options)
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as home, Prober(home) as prober:
        bare = Path(home) / "bare.py"
        bare.write_text(BARE_DAG)
        dag_files = sorted((REPOSITORY / "dags").glob("*.py"))
        figures = {
            "airflow": {"a DAG file of one empty task": told("airflow", bare.name, str(bare), prober)},
            "dags": {path.name: told("DAG file", path.name, str(path), prober) for path in dag_files},
            "modules": {name: told("module", name, name, prober) for name in OURS},
            "provider": {name: told("provider", name, name, prober) for name in PROVIDER},
        }
    slowest = max(cost["ms"] for cost in figures["dags"].values())
    cheapest = min(cost["ms"] for cost in figures["provider"].values())
    print(f"the slowest DAG file costs {slowest / cheapest:.3f} of the cheapest provider module")
    write("import.json", figures)


def told(kind: str, name: str, target: str, prober: Prober) -> dict[str, Any]:
    """Measure one target and say at once what it costs."""
    cost = prober.measure(target)
    heavy = ", ".join(cost["heavy_modules"]) or "none"
    print(f"{kind:9} {name:62} {cost['ms']:8.1f} ms {cost['mb']:7.1f} MB  heavy: {heavy}", flush=True)
    return cost
