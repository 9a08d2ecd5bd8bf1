"""What many waits cost and how soon they end, in a real triggerer: Everstep beside the provider's KubernetesJobTrigger.

Per number of waits, both sides get the same treatment in turn: so many deferred tasks on a fresh triggerer, a quiet
span in which requests, processor time and memory are taken, and a span in which objects end, evenly spread. An event's
delay counts from the moment at which the API server has answered the write of the end to the moment at which the
trigger yields its event, by the clock of one machine. Triggers that only sleep tell what Airflow itself costs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.airflow_triggerer import BenchAirflow
from tests.bench.api_server import ApiServer, running_api
from tests.bench.figures import percentile, ratio
from tests.bench.output import write
from tests.bench.waited_objects import BUCKET, Jobs, Sleeps, TrainingRuns, connections, object_name
from tests.bench.watch_plot import plot

from everstep_sandbox.checkpointing.testing import create_bucket
from everstep_sandbox.storage.process import running_storage

POLL_SECONDS = 10.0
# After the youngest wait began: longer than Everstep's dwell, than a poll of the provider, and than it takes Everstep
# to look into the bucket for the first time, for which it imports a library.
SETTLE_SECONDS = 35.0
START_SECONDS = 180.0
MOST_ENDS = 300
# A peer may be this much under the requests that its interval calls for before it counts as unable to keep it.
KEPT_SHARE = 0.95

Waited = TrainingRuns | Jobs | Sleeps


def main(options: Sequence[str] = ()) -> None:
    """Measure all and write build/bench/watch.json and watch.svg."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench watch", description=__doc__)
    parser.add_argument("--waits", default="100,500,1000", help="numbers of concurrent waits")
    parser.add_argument("--span", type=float, help="seconds of each span; 60 for the most waits and 30 for fewer")
    parser.add_argument("--api", default="", choices=("", "kube-apiserver", "sandbox"), help="which API")
    chosen = parser.parse_args(options)
    counts = [int(part) for part in chosen.waits.split(",")]
    figures: dict[str, Any] = {"waits": {}}
    with (
        tempfile.TemporaryDirectory(prefix="everstep-bench-", ignore_cleanup_errors=True) as directory,
        running_storage(Path(directory) / "storage") as storage,
        running_api(Path(directory) / "api", chosen.api) as api,
        BenchAirflow(Path(directory) / "airflow", connections(api.kubeconfig, storage)) as airflow,
    ):
        create_bucket(storage, BUCKET)
        figures["api"] = api.kind
        for count in counts:
            span = chosen.span or (60.0 if count == max(counts) else 30.0)
            namespace = f"bench-{count}"
            api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            waited: list[Waited] = [TrainingRuns(api, storage, namespace, count), Jobs(api, namespace, count)]
            if count in (min(counts), max(counts)):
                waited.append(Sleeps(count))
            figures["waits"][str(count)] = {each.name: measure(each, api, airflow, span) for each in waited}
    conclude(figures)
    write("watch.json", figures)
    write("watch.svg", plot(figures))


def measure(waited: Waited, api: ApiServer, airflow: BenchAirflow, span: float) -> dict[str, Any]:
    """Let a fresh triggerer wait for so many objects; return what it cost and how soon the ends were told."""
    waited.create()
    airflow.seed(waited.triggers())
    airflow.start_component("triggerer")
    try:
        names = [object_name(number) for number in range(waited.count)]
        running = airflow.wait_for_notes("started", names, START_SECONDS)
        if len(running) < waited.count:
            raise RuntimeError(
                f"{len(running)} of {waited.count} waits began; the triggerer says:\n{airflow.log_end()}"
            )
        time.sleep(0.0 if isinstance(waited, Sleeps) else SETTLE_SECONDS)
        found = quiet(waited, api, airflow, span)
        if not isinstance(waited, Sleeps):
            mark, began = api.mark(), time.monotonic()
            found.update(ends(waited, airflow, span))
            if api.kind != "sandbox":
                # The sandbox's API would count the bench's own requests too.
                made = api.requests_since(mark)
                found["requests_per_minute_while_ending"] = round(60 * made / (time.monotonic() - began), 1)
    finally:
        airflow.kill_component("triggerer")
    print(f"watch {waited.count:5} {waited.name:9} {json.dumps(found)}", flush=True)
    return found


def quiet(waited: Waited, api: ApiServer, airflow: BenchAirflow, span: float) -> dict[str, Any]:
    """Return requests and processor seconds a minute, and the memory, while nothing happens."""
    mark, cpu, began = api.mark(), airflow.cpu_seconds(), time.monotonic()
    time.sleep(span)
    minutes = (time.monotonic() - began) / 60
    cpu_spent, made = airflow.cpu_seconds() - cpu, api.requests_since(mark)
    found: dict[str, Any] = {
        "requests_per_minute": round(made / minutes, 1),
        "cpu_seconds_per_minute": round(cpu_spent / minutes, 2),
        "resident": airflow.resident(),
    }
    if isinstance(waited, Jobs):
        found["saturated"] = made / minutes < KEPT_SHARE * waited.count * 60 / POLL_SECONDS
    return found


def ends(waited: TrainingRuns | Jobs, airflow: BenchAirflow, span: float) -> dict[str, Any]:
    """Let objects end one by one over the span; return how late their events were, in ms."""
    count = min(waited.count, MOST_ENDS)
    # Spread over all waits: the first ones are the oldest.
    numbers = [index * waited.count // count for index in range(count)]
    asked: dict[str, float] = {}
    committed: dict[str, float] = {}
    began = time.monotonic()
    for index, number in enumerate(numbers):
        time.sleep(max(0.0, began + index * span / count - time.monotonic()))
        name = object_name(number)
        asked[name] = time.time()
        waited.end(number)
        committed[name] = time.time()
    fired = airflow.wait_for_notes("fired", committed, 12 * POLL_SECONDS)
    delays = [1000 * max(0.0, fired[name]["at"] - at) for name, at in committed.items() if name in fired]
    longest = [1000 * (fired[name]["at"] - at) for name, at in asked.items() if name in fired]
    strangers = sorted(fired.keys() - committed.keys())
    if strangers:
        raise RuntimeError(f"waits for objects that live fired: {strangers[:5]}")
    return {
        "ends": count,
        "missed": count - len(delays),
        "event_ms_p50": round(percentile(delays, 0.5), 1),
        "event_ms_p99": round(percentile(delays, 0.99), 1),
        "event_ms_p50_from_request": round(percentile(longest, 0.5), 1),
        "event_ms_p99_from_request": round(percentile(longest, 0.99), 1),
    }


def conclude(figures: dict[str, Any]) -> None:
    """Add what follows from the rows: memory per wait, what Airflow's own share is, and the ratios."""
    waits = figures["waits"]
    counts = sorted(waits, key=int)
    least, most = waits[counts[0]], waits[counts[-1]]
    more = int(counts[-1]) - int(counts[0])
    if more:
        for name in most:
            grown = sum(most[name]["resident"].values()) - sum(least[name]["resident"].values())
            for rows in waits.values():
                if name in rows:
                    rows[name]["bytes_per_wait"] = round(grown / more)
    for rows in waits.values():
        if "airflow" in rows:
            idle = rows["airflow"]["cpu_seconds_per_minute"]
            for name in ("everstep", "provider"):
                own = rows[name]["cpu_seconds_per_minute"] - idle
                rows[name]["cpu_seconds_per_minute_beyond_airflow"] = round(own, 2)
    figures["ratio"] = {
        count: {
            key: ratio(rows["everstep"][key], rows["provider"][key])
            for key in ("requests_per_minute", "cpu_seconds_per_minute", "event_ms_p50", "event_ms_p99")
        }
        for count, rows in waits.items()
    }
    for count, found in figures["ratio"].items():
        print(f"watch {count:>5} everstep / provider {json.dumps(found)}")
    print(f"watch bytes per wait {json.dumps({name: row.get('bytes_per_wait') for name, row in most.items()})}")
