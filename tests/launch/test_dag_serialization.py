"""A DAG that holds specs as Python objects can be stored by Airflow, and its tasks still find them."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG
from airflow.serialization import serialized_objects

from everstep.launch.operator import LaunchTrainingOperator
from everstep.provision.operators import PreflightOperator
from everstep.spec import ClusterSpec, TrainingSpec
from everstep.watch.sensors import CheckpointSensor

# Airflow 3.3 has split the class that older ones have.
Serialization: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG


def test_specs_in_a_dag(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    with DAG("specs", schedule=None) as dag:
        preflight = PreflightOperator(task_id="preflight", run=spec)
        launch = LaunchTrainingOperator(task_id="launch", run="runs/lm.yaml", overrides={"final_step": 5})
        sensor = CheckpointSensor(task_id="sensor", run=spec, min_step="{{ params.step }}")
        preflight >> launch >> sensor
    restored = Serialization.from_dict(Serialization.to_dict(dag))
    assert set(restored.task_ids) == {"preflight", "launch", "sensor"}
    assert launch.retries == 9
    preflight.render_template_fields({})
    assert preflight.spec() is spec
    sensor.render_template_fields({"params": {"step": 7}})
    assert sensor.min_step == "7"


def test_overrides_reach_a_spec_object_as_json_or_mapping(
    run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    for overrides in ({"final_step": 7}, '{"final_step": 7}'):
        operator = PreflightOperator(task_id="preflight", run=spec, overrides=overrides)
        assert operator.spec().final_step == 7
    for nothing in (None, {}, "", "None"):
        assert PreflightOperator(task_id="preflight", run=spec, overrides=nothing).spec().final_step == 100


def test_retries_of_default_args_are_respected(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    with DAG("defaults", schedule=None, default_args={"retries": 2}):
        launch = LaunchTrainingOperator(task_id="launch", run="runs/lm.yaml")
        own = LaunchTrainingOperator(task_id="own", run="runs/lm.yaml", retries=3)
    assert (launch.retries, own.retries) == (2, 3)
