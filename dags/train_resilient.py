"""One training run, from preflight to the retention plan. Trigger it in the UI: the form names the run."""

from __future__ import annotations

from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, Param

from everstep.resilient_training import resilient_training

HERE = Path(__file__).parent
RUNS = sorted(path.relative_to(HERE).as_posix() for path in (HERE / "runs").glob("*.yaml"))

with DAG(
    "train_resilient",
    schedule=None,
    catchup=False,
    tags=["everstep"],
    render_template_as_native_obj=True,
    doc_md=__doc__,
    params={
        "run": Param(
            RUNS[0] if RUNS else None,
            type="string",
            enum=RUNS,
            title="Run",
            description="A run file below dags/runs.",
        ),
        "overrides": Param(
            {},
            type=["object", "null"],
            title="Overrides",
            description='Settings that win over the run file, such as {"final_step": 500}.',
        ),
    },
) as dag:
    resilient_training("{{ params.run }}", overrides="{{ params.overrides }}")
