"""Runs the DAG train_resilient by dag.test() in this Python's Airflow, against a running sandbox.

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

DAG_FILE = Path(__file__).resolve().parents[1] / "dags" / "train_resilient.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox", type=Path, required=True, help="directory of a running sandbox")
    parser.add_argument("--home", type=Path, required=True, help="AIRFLOW_HOME, made if it is missing")
    parser.add_argument("--expect-airflow", default="", help="fail unless Airflow's version begins so")
    parser.add_argument("--run", default="runs/stdlib-lm.yaml")
    parser.add_argument("--overrides", type=json.loads, default={"final_step": 20})
    arguments = parser.parse_args()
    _set_environment(arguments.sandbox, arguments.home)
    version = _migrate()
    if not version.startswith(arguments.expect_airflow):
        print(f"Airflow is {version}, expected {arguments.expect_airflow}", file=sys.stderr)
        return 2
    if version.startswith("3"):
        # Since 3.0 a DAG can only run once it is serialized, which reading its folder does.
        subprocess.run([sys.executable, "-m", "airflow", "dags", "reserialize"], check=True)
    dag = runpy.run_path(str(DAG_FILE))["dag"]
    dag_run = dag.test(run_conf={"run": arguments.run, "overrides": arguments.overrides})
    print(f"train_resilient on Airflow {version}: {dag_run.state}")
    return 0 if str(getattr(dag_run.state, "value", dag_run.state)) == "success" else 1


def _set_environment(sandbox: Path, home: Path) -> None:
    addresses = json.loads((sandbox / "sandbox.json").read_text())
    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": addresses["kubeconfig"]}}
    google = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "everstep-sandbox"}}
    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        AIRFLOW_HOME=str(home.resolve()),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent),
        AIRFLOW__CORE__UNIT_TEST_MODE="False",
        STORAGE_EMULATOR_HOST=addresses["storage"],
        AIRFLOW_CONN_EVERSTEP_SANDBOX=json.dumps(kubernetes),
        AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT=json.dumps(google),
    )


def _migrate() -> str:
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True)
    shown = subprocess.run([sys.executable, "-m", "airflow", "version"], check=True, capture_output=True, text=True)
    return shown.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
