"""The parts of the benches that can be wrong without anybody seeing it: arithmetic, counting, the picture."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.bench.api_server import ApiServer, count_requests
from tests.bench.figures import percentile, ratio
from tests.bench.file_times import FileTimes
from tests.bench.handshake import summary
from tests.bench.throttle import throttled
from tests.bench.watch import conclude
from tests.bench.watch_plot import plot


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), ([float(n) for n in range(1, 101)], 0.99, 99.0)],
)
def test_percentile_is_a_sample(samples: list[float], share: float, expected: float) -> None:
    assert percentile(samples, share) == expected
    assert percentile(samples[::-1], share) == expected


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_ratio() -> None:
    assert ratio(1.0, 3.0) == 0.333
    assert ratio(1.0, 0.0) is None


def entry(**changes: Any) -> str:
    fields = {"stage": "ResponseComplete", "verb": "get", "user": {"username": "everstep-admin"}, "userAgent": "x"}
    return json.dumps({**fields, **changes})


def test_requests_of_others_are_counted_once() -> None:
    assert count_requests([entry(), entry(verb="patch")]) == 2
    assert count_requests([entry(userAgent="everstep-bench"), entry(user={"username": "system:kube-scheduler"})]) == 0
    watch = [entry(verb="watch", stage="ResponseStarted"), entry(verb="watch", responseStatus={"code": 200})]
    assert count_requests(watch) == 1
    assert count_requests([entry(verb="watch", responseStatus={"code": 410})]) == 1
    assert count_requests(["", entry()[:20]]) == 0


def test_an_audit_log_that_was_begun_anew_is_no_count(tmp_path: Path) -> None:
    cluster, user = {"server": "https://127.0.0.1:1"}, {"token": "x"}
    config = {"clusters": [{"cluster": cluster}], "users": [{"user": user}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "audit.jsonl").write_text(entry() + "\n")
    api = ApiServer(tmp_path, "kube-apiserver")
    mark = api.mark()
    assert api.requests_since(mark) == 0
    (tmp_path / "audit.jsonl").write_text("\n")
    with pytest.raises(RuntimeError, match="has been rotated"):
        api.requests_since(mark)


def row(requests: float, resident: int) -> dict[str, Any]:
    return {
        "requests_per_minute": requests,
        "cpu_seconds_per_minute": 1.0,
        "event_ms_p50": 20.0,
        "event_ms_p99": 50.0,
        "resident": {"supervisor": 10, "runner": resident},
    }


def figures() -> dict[str, Any]:
    waits = {
        "100": {"everstep": row(1.0, 1000), "provider": row(600.0, 2000)},
        "1000": {"everstep": row(0.0, 10_000), "provider": row(6000.0, 92_000)},
    }
    found: dict[str, Any] = {"waits": waits}
    conclude(found)
    return found


def test_memory_per_wait_is_the_growth_between_the_least_and_the_most_waits() -> None:
    rows = figures()["waits"]["1000"]
    assert rows["everstep"]["bytes_per_wait"] == 10
    assert rows["provider"]["bytes_per_wait"] == 100


def test_what_airflow_itself_costs_is_told_apart() -> None:
    rows = {"everstep": row(0.0, 1), "provider": row(600.0, 2), "airflow": row(0.0, 3)}
    rows["everstep"]["cpu_seconds_per_minute"] = 1.8
    conclude({"waits": {"100": rows}})
    assert rows["everstep"]["cpu_seconds_per_minute_beyond_airflow"] == 0.8
    assert "cpu_seconds_per_minute_beyond_airflow" not in rows["airflow"]


def test_ratios_are_of_one_number_of_waits() -> None:
    ratios = figures()["ratio"]
    assert ratios["100"]["requests_per_minute"] == 0.00167
    assert ratios["1000"] == {
        "requests_per_minute": 0.0,
        "cpu_seconds_per_minute": 1.0,
        "event_ms_p50": 1.0,
        "event_ms_p99": 1.0,
    }


def test_the_plot_is_xml_with_a_line_for_each_side_and_chart() -> None:
    root = ElementTree.fromstring(plot(figures()))
    lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 8
    heights = [float(line.attrib["points"].split()[-1].split(",")[1]) for line in lines[:2]]
    assert heights[0] > heights[1], "fewer requests are lower in the chart"


def test_files_are_timed_when_they_come_and_go(tmp_path: Path) -> None:
    times = FileTimes(tmp_path)
    try:
        before = time.monotonic()
        (tmp_path / "a.restore").touch()
        between = time.monotonic()
        (tmp_path / "a.restore").unlink()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                times.first("a.restore", came=False, since=before)
                break
            except LookupError:
                continue
        came = times.first(".restore", came=True, since=before)
        went = times.first(".restore", came=False, since=between)
        assert before <= came <= went
        with pytest.raises(LookupError):
            times.first(".yaml", came=True, since=before)
    finally:
        times.close()


@pytest.mark.sandbox
def test_a_throttled_process_gets_its_share() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        process = psutil.Process(busy.pid)
        with throttled([busy.pid], 0.25) as means:
            before, began = sum(process.cpu_times()[:2]), time.monotonic()
            time.sleep(2.0)
            spent, passed = sum(process.cpu_times()[:2]) - before, time.monotonic() - began
        assert means
        assert spent / passed < 0.4
    finally:
        busy.kill()
        busy.wait()


def test_handshake_summary() -> None:
    one = {"rank": 1.0, "consumed": 2.0, "marker": 3.0, "total": 6.0, "cpu_ms": 0.5, "seconds": 1.0}
    found = summary([one, {**one, "total": 8.0}])
    assert found["samples"] == 2
    assert found["late_ms"]["total"] == {"p50": 6.0, "p99": 8.0}
