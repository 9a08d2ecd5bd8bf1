"""Twenty runs and one triggerer at half a CPU; one run has 4,096 pods and restarts whole.

The control plane is real: scheduler, Job and JobSet controllers make, place and delete each pod; KWOK plays kubelets. A
delay counts from the moment at which this process's own watch shows a JobSet's terminal condition to the moment at
which its trigger yields the event, by the clock of one machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.airflow_triggerer import BenchAirflow
from tests.bench.api_server import JOBSETS, ApiServer, Object, Refused, in_threads, running_api
from tests.bench.figures import percentile
from tests.bench.jobset_watch import JobSetWatch
from tests.bench.output import write
from tests.bench.simulated_nodes import end_pod, simulated_nodes
from tests.bench.throttle import throttled
from tests.bench.waited_objects import BUCKET, POD, Trigger, connections, training_trigger

from everstep.launch import labels
from everstep_sandbox.checkpointing.testing import create_bucket
from everstep_sandbox.storage.process import running_storage

NAMESPACE = "default"
CPU_SHARE = 0.5
SMALL_SLICES, SMALL_NODES = 2, 2
LARGE = "run-large"
LARGE_NODES = 16
START_SECONDS = 180.0
# After a change, for what the waits do about it.
SETTLE_SECONDS = 15.0
PROBE: Trigger = ("tests.bench.plain_triggers.LoopProbe", {"name": "probe"})


def main(options: Sequence[str] = ()) -> None:
    """Measure and write build/bench/load.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench load", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=4096, help="pods of the large run, 16 to a slice")
    parser.add_argument("--patience", type=float, default=900, help="seconds for all pods of the large run to run")
    chosen = parser.parse_args(options)
    with (
        tempfile.TemporaryDirectory(prefix="everstep-bench-", ignore_cleanup_errors=True) as directory,
        running_storage(Path(directory) / "storage") as storage,
        running_api(Path(directory) / "api", "kube-apiserver") as api,
        simulated_nodes(api, Path(directory)),
        BenchAirflow(Path(directory) / "airflow", connections(api.kubeconfig, storage)) as airflow,
    ):
        create_bucket(storage, BUCKET)
        figures = Load(api, airflow, chosen.runs, chosen.pods, chosen.patience).measure()
    print(f"load {json.dumps(figures)}")
    write("load.json", figures)


class Load:
    """The test, step by step."""

    def __init__(self, api: ApiServer, airflow: BenchAirflow, runs: int, pods: int, patience: float) -> None:
        self._api, self._airflow, self._patience = api, airflow, patience
        self._pods = pods
        self._small = [f"run-{number:02}" for number in range(runs - 1)]
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
            self._create(name, SMALL_SLICES, SMALL_NODES)
        created = time.time()
        self._create(LARGE, self._pods // LARGE_NODES, LARGE_NODES)
        self._airflow.seed([PROBE, *[training_trigger(name, NAMESPACE, uid) for name, uid in self._uids.items()]])
        began = self._airflow.wait_for_notes("started", self._uids, START_SECONDS)
        if not began.keys() >= self._uids.keys():
            raise RuntimeError(f"only {sorted(began)} began; the triggerer says:\n{self._airflow.log_end()}")
        start = watch.until(LARGE, self._all_ready, self._patience) - created
        say(f"all {self._pods} pods of the large run ran for the first time after", start)
        time.sleep(SETTLE_SECONDS)
        failed = time.time()
        self._fail_a_pod(LARGE)
        restart = watch.until(LARGE, self._has_restarted, self._patience) - failed
        say("the large run had restarted whole after", restart)
        time.sleep(SETTLE_SECONDS)
        self._fail_a_pod(LARGE)
        for name in self._small:
            self._complete(name)
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

    def _loop(self) -> dict[str, dict[str, float]]:
        """Return the worst of each second since the waits began: the highest, and what 99 % of seconds stay below."""
        seconds = list(self._airflow.noted("loop").values())
        return {
            clock: {
                "p99": round(percentile([each[clock] for each in seconds], 0.99), 1),
                "most": round(max(each[clock] for each in seconds), 1),
            }
            for clock in ("wall", "thread", "process")
        }

    def _memory_taken(self) -> _Sampler:
        return _Sampler(lambda: self._memory.append(sum(self._airflow.resident().values())))

    def _create(self, name: str, slices: int, nodes: int) -> None:
        made = self._api.call("POST", f"{JOBSETS}/namespaces/{NAMESPACE}/jobsets", jobset(name, slices, nodes))
        self._uids[name] = made["metadata"]["uid"]

    def _all_ready(self, found: Object) -> bool:
        return sum(each.get("ready", 0) for each in found["status"].get("replicatedJobsStatus", ())) == (
            self._pods // LARGE_NODES
        )

    def _has_restarted(self, found: Object) -> bool:
        return int(found["status"].get("restarts") or 0) == 1 and self._all_ready(found)

    def _fail_a_pod(self, name: str) -> None:
        end_pod(self._api, self._live_pods(name, 1)[0], 1)

    def _complete(self, name: str) -> None:
        pods = self._live_pods(name, SMALL_SLICES * SMALL_NODES)
        in_threads(lambda number: end_pod(self._api, pods[number], 0), len(pods))

    def _live_pods(self, name: str, most: int) -> list[Object]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={labels.JOBSET_NAME}%3D{name}&limit={most}"
        found: list[Object] = self._api.call("GET", path)["items"]
        if not found:
            raise Refused(f"JobSet {name} has no pods")
        return found


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


def jobset(name: str, slices: int, nodes: int) -> Object:
    """Return a JobSet as Everstep launches it, which restarts once."""
    template = {"parallelism": nodes, "completions": nodes, "backoffLimit": 0, "template": {"spec": POD}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {labels.RUN: name, labels.OWNER: labels.owner_hash("bench")},
            "annotations": {labels.LAUNCH: "1", labels.HOLDER: "bench"},
        },
        "spec": {
            "failurePolicy": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": template}}],
        },
    }


def say(what: str, seconds: float) -> None:
    """Print progress."""
    print(f"load {what} {seconds:.1f} s", flush=True)


def _is_terminal(found: Object) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(each["type"] in ("Completed", "Failed") and each["status"] == "True" for each in conditions)
