"""Runs train_resilient, and sweep_checkpoints, by dag.test() in this Python's Airflow, against a running sandbox.

It is a second Airflow beside any other: a home, a database and connections of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

DAGS = Path(__file__).resolve().parents[1] / "dags"
BUCKET, SWEPT = "everstep-demo", "nightly"
BACKUPS = ("2026-03-01_00-00", "2026-03-02_00-00", "2026-03-03_00-00", "2026-03-04_00-00")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox", type=Path, required=True, help="directory of a running sandbox")
    parser.add_argument("--home", type=Path, required=True, help="AIRFLOW_HOME, made if it is missing")
    parser.add_argument("--expect-airflow", default="", help="fail unless Airflow's version begins so")
    parser.add_argument("--run", default="runs/stdlib-lm.yaml")
    parser.add_argument("--overrides", type=json.loads, default={"final_step": 20})
    parser.add_argument("--sweep", action="store_true", help="then run sweep_checkpoints too")
    arguments = parser.parse_args()
    _set_environment(arguments.sandbox, arguments.home)
    _make_priority_classes(os.environ["KUBECONFIG"])
    version = _migrate()
    if not version.startswith(arguments.expect_airflow):
        print(f"Airflow is {version}, expected {arguments.expect_airflow}", file=sys.stderr)
        return 2
    # Since 3.0 a DAG can only run once it is serialized, and asset aliases are made then; reading its folder does both.
    subprocess.run([sys.executable, "-m", "airflow", "dags", "reserialize"], check=True)
    trained = _run("train_resilient", version, {"run": arguments.run, "overrides": arguments.overrides})
    return 0 if trained == "success" and (not arguments.sweep or _sweeps(version)) else 1


def _run(name: str, version: str, configuration: dict[str, Any]) -> str:
    dag = runpy.run_path(str(DAGS / f"{name}.py"))["dag"]
    dag_run = dag.test(run_conf=configuration)
    state = str(getattr(dag_run.state, "value", dag_run.state))
    print(f"{name} on Airflow {version}: {state}", flush=True)
    return state


def _sweeps(version: str) -> bool:
    """Say whether sweep_checkpoints sweeps the older half of a run's backups, and only when it is told to.

    Where nobody can be asked, a sweep that is to ask fails and removes nothing. Waiting for a person is beyond
    dag.test().
    """
    from everstep.clients.access import StorageAccess

    bucket = StorageAccess(endpoint=os.environ["STORAGE_EMULATOR_HOST"]).open(BUCKET)
    record = {"nodes": 1, "workers_per_node": 1, "data_parallelism": None, "lineage": "first"}
    bucket.write(f"{SWEPT}/everstep/run.json", record, generation=None)
    for step, name in enumerate(BACKUPS, start=1):
        digest = f"D{step:064}"
        bucket.write_text(f"{SWEPT}/{name}/{SWEPT}-s{step}-n0-w0.meta", digest, generation=None)
        bucket.write_text(f"{SWEPT}/{name}/{digest}.data/part", name, generation=None)
    retention = {"young_hours": 0, "hourly": 0, "daily": 0, "weekly": 0}
    steps = [({}, "success", BACKUPS), ({"apply": True}, "success", BACKUPS[2:])]
    if version.startswith("2"):
        steps.insert(1, ({"apply": True, "approve": True}, "failed", BACKUPS))
    for how, expected_state, expected in steps:
        state = _run("sweep_checkpoints", version, {"runs": SWEPT, "retention": retention, **how})
        found = tuple(name for name in BACKUPS if bucket.list_level(f"{SWEPT}/{name}/").objects)
        print(f"  {how}: {', '.join(found)} are there", flush=True)
        if (state, found) != (expected_state, expected):
            print(f"  expected {expected_state}, and {', '.join(expected)}", file=sys.stderr)
            return False
    return True


def _set_environment(sandbox: Path, home: Path) -> None:
    addresses = json.loads((sandbox / "sandbox.json").read_text())
    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": addresses["kubeconfig"]}}
    google = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "everstep-sandbox"}}
    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        AIRFLOW_HOME=str(home.resolve()),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__CORE__UNIT_TEST_MODE="False",
        KUBECONFIG=addresses["kubeconfig"],
        STORAGE_EMULATOR_HOST=addresses["storage"],
        AIRFLOW_CONN_EVERSTEP_SANDBOX=json.dumps(kubernetes),
        AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT=json.dumps(google),
    )


def _make_priority_classes(kubeconfig: str) -> None:
    """Make those that the run file asks for; a run makes none itself."""
    from kubernetes import client, config

    classes = client.SchedulingV1Api(config.new_client_from_config(kubeconfig))
    for name, value in (("training-high", 2_000_000), ("training-low", 1_000_000)):
        try:
            classes.create_priority_class({"metadata": {"name": name}, "value": value, "description": "Training"})
        except client.ApiException as failure:
            if failure.status != 409:
                raise


def _migrate() -> str:
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True)
    shown = subprocess.run([sys.executable, "-m", "airflow", "version"], check=True, capture_output=True, text=True)
    return shown.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
