"""The DAG in a real Airflow: it survives the loss of each of Airflow's own parts, and never launches a run twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep_sandbox.demo.stack import REPOSITORY, DemoStack

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(420)]


def test_killing_each_part_of_airflow_changes_nothing_for_the_run(stack: DemoStack, new_run: Any) -> None:
    run = new_run("killed-parts", steps=300).trigger()

    run.wait_for(lambda: bool(run.jobsets_created()), 180)
    # The scheduler runs the workers: the one that has just created the JobSet dies with it, before it could defer.
    stack.airflow.kill_component("scheduler")
    stack.airflow.start_component("scheduler")

    run.wait_for(lambda: run.tasks.get("launch") == "deferred" and run.step > 0, 150)
    stack.airflow.kill_component("triggerer")
    stack.airflow.start_component("triggerer")
    step = run.step
    run.wait_for(lambda: run.step > step, 60)
    stack.airflow.kill_component("scheduler")
    stack.airflow.start_component("scheduler")

    assert run.end() == "success", run.explain()
    assert len(run.jobsets_created()) == 1, "one JobSet of the run, by the API's own write log"
    assert run.view.jobset() is not None
    result = stack.airflow.result(run.dag_id, run.run_id, "launch")
    assert (result["verdict"], result["launch"], result["restarts"]) == ("completed", 1, 0)


def test_two_airflows_launch_one_run_and_one_is_refused(stack: DemoStack, new_run: Any, tmp_path: Path) -> None:
    run = new_run("two-airflows", steps=100_000)
    log = tmp_path / "other-airflow.log"
    with log.open("wb") as output:
        other = subprocess.Popen(
            [
                sys.executable,
                str(REPOSITORY / "scripts" / "run_dag.py"),
                f"--sandbox={stack.sandbox_directory}",
                f"--home={tmp_path / 'airflow'}",
                f"--overrides={json.dumps(run.overrides)}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            run.wait_for(lambda: bool(run.jobsets_created()), 150, lambda: log.read_text()[-2000:])
            run.trigger()
            assert run.end() == "failed", run.explain()
            assert "JobSet default/two-airflows: live" in run.log("launch")
            assert "launched by" in run.log("launch"), "the refusal names who holds the run"
            live = run.view.jobset()
            assert live is not None
            assert live["metadata"]["uid"] == run.jobsets_created()[0]["uid"]
            assert not live["status"].get("terminalState")
            assert len(run.jobsets_created()) == 1, "one JobSet of the run, by the API's own write log"
        finally:
            run.delete_jobset()
            other.terminate()
            other.wait()


def test_the_log_of_launch_tells_the_story(stack: DemoStack, new_run: Any) -> None:
    run = new_run("told", steps=20).trigger()
    assert run.end() == "success", run.explain()
    story = run.log("launch")
    for part in ("Lease of run told taken", "JobSet default/told created: launch 1", "completed"):
        assert part in story
    assert stack.airflow.result(run.dag_id, run.run_id, "gate") == {
        "step": 20,
        "tier": "durable",
        "name": "checkpoints/20",
    }
    plan = stack.airflow.result(run.dag_id, run.run_id, "plan_retention")
    assert {unit["decision"] for unit in plan["units"]} == {"keep"}


def test_bad_input_is_refused_with_all_findings_and_nothing_is_created(stack: DemoStack, new_run: Any) -> None:
    run = new_run("a-name-that-is-much-too-long-for-the-pods-of-a-jobset-of-one-slice", steps=20)
    run.overrides["priority"] = "nobody"
    run.overrides["trainer"] = {"imagee": "x"}
    run.trigger()
    assert run.end(timeout=90) == "failed"
    log = run.log("preflight")
    for part in ("imagee", "image"):
        assert part in log
    assert run.jobsets_created() == []
    assert run.view.status() == {}


def test_the_form_offers_the_run_files(stack: DemoStack) -> None:
    details = stack.airflow.call("GET", "/api/v2/dags/train_resilient/details")
    run = details["params"]["run"]
    assert run["schema"]["enum"] == ["runs/stdlib-lm.yaml"]
    assert run["value"] == "runs/stdlib-lm.yaml"
    assert "overrides" in details["params"]


def test_the_plugin_is_loaded(stack: DemoStack) -> None:
    plugins = stack.airflow.call("GET", "/api/v2/plugins")["plugins"]
    assert "everstep" in {plugin["name"] for plugin in plugins}
    assert stack.airflow.call("GET", "/api/v2/plugins/importErrors")["total_entries"] == 0
