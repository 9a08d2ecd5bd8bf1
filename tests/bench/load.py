"""Twenty runs and one triggerer at half a CPU; one run has 4,096 pods and restarts whole.

Where the real control plane is built, its scheduler, Job and JobSet controllers make, place and delete each pod, and
KWOK plays kubelets; elsewhere this process writes all that into the sandbox's API. A delay counts from the moment at
which this process's own watch shows a JobSet's terminal condition to the moment at which its trigger yields the event,
by the clock of one machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.airflow_triggerer import BenchAirflow
from tests.bench.api_server import ApiServer, Object, running_api
from tests.bench.figures import percentile
from tests.bench.jobset_watch import JobSetWatch
from tests.bench.output import write
from tests.bench.played_runs import NAMESPACE, ControlledRuns, PlayedRuns, Runs
from tests.bench.simulated_nodes import simulated_nodes
from tests.bench.throttle import throttled
from tests.bench.waited_objects import BUCKET, Trigger, connections, training_trigger

from everstep_sandbox.checkpointing.testing import create_bucket
from everstep_sandbox.storage.process import running_storage

CPU_SHARE = 0.5
SMALL_SLICES, SMALL_NODES = 2, 2
LARGE = "run-large"
LARGE_NODES = 16
START_SECONDS = 180.0
# How long it takes half a CPU at most to import what the first wait needs.
IMPORT_SECONDS = 10.0
# After a change, for what the waits do about it.
SETTLE_SECONDS = 15.0
PROBE: Trigger = ("tests.bench.plain_triggers.LoopProbe", {"name": "probe"})


def main(options: Sequence[str] = ()) -> None:
    """Measure and write build/bench/load.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench load", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=4096, help="pods of the large run, 16 to a slice")
    parser.add_argument("--api", default="", choices=("", "kube-apiserver", "sandbox"), help="which API")
    parser.add_argument("--patience", type=float, default=900, help="seconds for all pods of the large run to run")
    chosen = parser.parse_args(options)
    with (
        tempfile.TemporaryDirectory(prefix="everstep-bench-", ignore_cleanup_errors=True) as directory,
        running_storage(Path(directory) / "storage") as storage,
        running_api(Path(directory) / "api", chosen.api, controllers=False) as api,
        runs_on(api, Path(directory)) as runs,
        BenchAirflow(Path(directory) / "airflow", connections(api.kubeconfig, storage)) as airflow,
    ):
        create_bucket(storage, BUCKET)
        figures = Load(api, runs, airflow, chosen.runs, chosen.pods, chosen.patience).measure()
    print(f"load {json.dumps(figures)}")
    write("load.json", figures)


@contextmanager
def runs_on(api: ApiServer, directory: Path) -> Iterator[Runs]:
    """Return runs with real controllers and simulated nodes where the control plane is real, else played ones."""
    if api.kind == "sandbox":
        yield PlayedRuns(api)
        return
    with simulated_nodes(api, directory):
        yield ControlledRuns(api)


class Load:
    """The test, step by step."""

    def __init__(
        self, api: ApiServer, runs: Runs, airflow: BenchAirflow, count: int, pods: int, patience: float
    ) -> None:
        self._api, self._runs, self._airflow, self._patience = api, runs, airflow, patience
        self._pods = pods
        self._small = [f"run-{number:02}" for number in range(count - 1)]
        self._memory: list[int] = []
        self._uids: dict[str, str] = {}

    def measure(self) -> dict[str, Any]:
        """Return all figures."""
        airflow = self._airflow
        airflow.seed([PROBE])
        airflow.start_component("triggerer")
        try:
            if not airflow.wait_for_notes("started", ["probe"], START_SECONDS):
                raise RuntimeError(f"no wait began; the triggerer says:\n{airflow.log_end()}")
            time.sleep(10.0)
            idle = sum(airflow.resident().values())
            pids = [process.pid for process in airflow.family()]
            with throttled(pids, CPU_SHARE) as means, JobSetWatch(self._api, NAMESPACE) as watch, self._memory_taken():
                return {
                    "api": self._api.kind,
                    "runs": 1 + len(self._small),
                    "pods": self._pods,
                    "throttle": means,
                    **self._play(watch),
                    "triggerer_mb_above_idle": round((max(self._memory) - idle) / 2**20, 1),
                    "triggerer_mb_idle": round(idle / 2**20, 1),
                    "loop_blocked_ms": self._loop(),
                }
        finally:
            airflow.kill_component("triggerer")

    def _play(self, watch: JobSetWatch) -> dict[str, Any]:
        for name in self._small:
            self._uids[name] = self._runs.create(name, SMALL_SLICES, SMALL_NODES)
        created = time.time()
        self._uids[LARGE] = self._runs.create(LARGE, self._pods // LARGE_NODES, LARGE_NODES)
        self._airflow.seed([PROBE, *[training_trigger(name, NAMESPACE, uid) for name, uid in self._uids.items()]])
        began = self._airflow.wait_for_notes("started", self._uids, START_SECONDS)
        if not began.keys() >= self._uids.keys():
            raise RuntimeError(f"only {sorted(began)} began; the triggerer says:\n{self._airflow.log_end()}")
        start = watch.until(LARGE, self._all_ready, self._patience) - created
        say(f"all {self._pods} pods of the large run ran for the first time after", start)
        time.sleep(SETTLE_SECONDS)
        failed = time.time()
        self._runs.lose_a_pod(LARGE)
        restart = watch.until(LARGE, self._has_restarted, self._patience) - failed
        say("the large run had restarted whole after", restart)
        time.sleep(SETTLE_SECONDS)
        self._runs.lose_a_pod(LARGE)
        for name in self._small:
            self._runs.complete(name)
            time.sleep(1.0)
        for name in self._uids:
            watch.until(name, _is_terminal, self._patience)
        return {"start_seconds": round(start, 1), "restart_seconds": round(restart, 1), **self._delays(watch)}

    def _delays(self, watch: JobSetWatch) -> dict[str, Any]:
        ended = {name: watch.first(name, _is_terminal) for name in self._uids}
        fired = self._airflow.wait_for_notes("fired", ended, 60.0)
        delays = {name: 1000 * (fired[name]["at"] - at) for name, at in ended.items() if name in fired}
        return {
            "missed": len(ended) - len(delays),
            "event_ms_p50": round(percentile(list(delays.values()), 0.5), 1),
            "event_ms_p99": round(percentile(list(delays.values()), 0.99), 1),
            "event_ms_large": round(delays[LARGE], 1) if LARGE in delays else None,
        }

    def _loop(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return how long the loop was blocked: while waits begin and Airflow imports their code, and after that."""
        began = max(each["at"] for each in self._airflow.noted("started").values()) + IMPORT_SECONDS
        seconds = list(self._airflow.noted("loop").values())
        return {
            "at_start": worst([each for each in seconds if each["at"] <= began]),
            "after": worst([each for each in seconds if each["at"] > began]),
        }

    def _memory_taken(self) -> _Sampler:
        return _Sampler(lambda: self._memory.append(sum(self._airflow.resident().values())))

    def _all_ready(self, found: Object) -> bool:
        return sum(each.get("ready", 0) for each in found["status"].get("replicatedJobsStatus", ())) == (
            self._pods // LARGE_NODES
        )

    def _has_restarted(self, found: Object) -> bool:
        return int(found["status"].get("restarts") or 0) == 1 and self._all_ready(found)


class _Sampler:
    """Does something twice a second within a block."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._act()
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(0.5):
            self._act()


def worst(seconds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return of each clock the highest of the seconds' worst, and what 99 % of the seconds stay below."""
    return {
        clock: {
            "p99": round(percentile([each[clock] for each in seconds], 0.99), 1),
            "most": round(max(each[clock] for each in seconds), 1),
        }
        for clock in ("wall", "thread", "process")
    }


def say(what: str, seconds: float) -> None:
    """Print progress."""
    print(f"load {what} {seconds:.1f} s", flush=True)


def _is_terminal(found: Object) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(each["type"] in ("Completed", "Failed") and each["status"] == "True" for each in conditions)
