"""The gate: a run is complete when its final step is complete in the bucket, and not before."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.clients.access import StorageAccess
from everstep.resume.gate import FinalStepGateOperator
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec

pytestmark = pytest.mark.sandbox


class TaskInstance:
    """As much of a task instance as the links need."""

    def xcom_push(self, key: str, value: Any) -> None:
        pass


@pytest.fixture
def gate(
    cloud_storage: Any,
    new_bucket: str,
    run_data: dict[str, Any],
    cluster_data: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> FinalStepGateOperator:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_storage.address)
    monkeypatch.setenv(
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT",
        '{"conn_type": "google_cloud_platform", "extra": {"is_anonymous": true, "project": "test"}}',
    )
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    return FinalStepGateOperator(task_id="gate", run=spec)


def put(gate: FinalStepGateOperator, cloud_storage: Any, name: str) -> None:
    spec = gate.spec()
    bucket = StorageAccess(endpoint=cloud_storage.address).open(spec.bucket)
    bucket._bucket.blob(f"{spec.name}/{name}").upload_from_string("D" + "ab" * 32)


def execute(gate: FinalStepGateOperator) -> dict[str, Any]:
    return gate.execute({"ti": TaskInstance()})  # type: ignore[arg-type]


def backup(gate: FinalStepGateOperator, cloud_storage: Any, step: int, nodes: int) -> None:
    for node in range(nodes):
        put(gate, cloud_storage, f"2026-11-01_10-00/lm-s{step}-n{node}-w0.meta")
    put(gate, cloud_storage, f"2026-11-01_10-00/D{'ab' * 32}.data/x")


def test_nothing_in_the_bucket_does_not_pass(gate: FinalStepGateOperator) -> None:
    with pytest.raises(AirflowFailException, match=r"step 100 was expected .* there is nothing"):
        execute(gate)


def test_an_unfinished_final_save_does_not_pass(gate: FinalStepGateOperator, cloud_storage: Any) -> None:
    put(gate, cloud_storage, "checkpoints/100/d/1")
    with pytest.raises(AirflowFailException, match="unfinished durable save of step 100"):
        execute(gate)


def test_an_earlier_step_does_not_pass(gate: FinalStepGateOperator, cloud_storage: Any) -> None:
    backup(gate, cloud_storage, 95, 4)
    with pytest.raises(AirflowFailException, match=r"2026-11-01_10-00 \(complete, step 95\)"):
        execute(gate)


def test_a_durable_save_of_the_final_step_passes(gate: FinalStepGateOperator, cloud_storage: Any) -> None:
    put(gate, cloud_storage, "checkpoints/100/default/d/1")
    put(gate, cloud_storage, "checkpoints/100/commit_success.txt")
    assert execute(gate) == {"step": 100, "tier": "durable", "name": "checkpoints/100"}


def test_a_complete_backup_of_the_final_step_passes_and_an_incomplete_one_does_not(
    gate: FinalStepGateOperator, cloud_storage: Any
) -> None:
    backup(gate, cloud_storage, 100, 1)
    with pytest.raises(AirflowFailException):
        execute(gate)
    backup(gate, cloud_storage, 100, 4)
    assert execute(gate)["tier"] == "backup"
