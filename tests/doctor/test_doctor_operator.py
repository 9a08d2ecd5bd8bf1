"""The doctor in tasks: on its own, and in the errors of waits that fail, through Airflow connections."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from tests.doctor.clinic import Clinic

from everstep.clients.resources import EVENTS, JOBSETS
from everstep.cluster_operator import ClusterOperator
from everstep.doctor.operator import DoctorOperator
from everstep.launch import manifest
from everstep.launch.operator import LaunchTrainingOperator
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep.watch.sensors import CheckpointSensor, RestoreSensor

pytestmark = pytest.mark.sandbox


class TaskInstance:
    """As much of a task instance as the operators need."""

    dag_id, task_id, run_id, map_index, try_number = "dag", "doctor", "manual__1", -1, 1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def context() -> Any:
    return {"ti": TaskInstance(), "dag_run": None}


@pytest.fixture
def connections(bare_kubernetes: Any, cloud_storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(bare_kubernetes.kubeconfig)}}
    # Nobody answers for Google's other APIs, which a run's doctor does not ask and a cluster's goes on without.
    nowhere = {"storage_endpoint": cloud_storage.address, "google_endpoint": "http://127.0.0.1:9"}
    storage = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "test", **nowhere}}
    monkeypatch.setenv("AIRFLOW_CONN_EVERSTEP_SANDBOX", json.dumps(kubernetes))
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(storage))


@pytest.fixture
def refused(
    connections: None,
    bare_kubernetes: Any,
    cloud_storage: Any,
    new_bucket: str,
    run_data: dict[str, Any],
    cluster_data: dict[str, Any],
) -> Iterator[TrainingSpec]:
    """A run whose pods are refused for want of a service account."""
    run_data |= {"name": f"lm-{uuid.uuid4().hex[:6]}", "priority": None}
    run_data["slices"] = {"pool": "v6e-2x4", "count": 1, "spare": "none"}
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    cluster_data["priorities"] = {}
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    clinic = Clinic(bare_kubernetes.kubeconfig, cloud_storage.address)
    clinic.cluster.create(JOBSETS, manifest.build(spec, launch=1, holder="test"), "default")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{spec.name}.1"},
        "involvedObject": {"kind": "Job", "name": f"{spec.name}-slice-0", "namespace": "default"},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": 'Error creating: pods "x" is forbidden: error looking up service account default/trainer: '
        'serviceaccount "trainer" not found',
    }
    clinic.cluster.create(EVENTS, event, "default")
    yield spec
    clinic.close()


TOLD = "ServiceAccount default/trainer is not there"


def test_the_operator_returns_diagnoses_and_fails_only_when_asked(refused: TrainingSpec) -> None:
    found = DoctorOperator(task_id="doctor", run=refused).execute(context())
    assert "pods-refused-account" in [one["symptom"] for one in found["diagnoses"]]
    assert json.loads(json.dumps(found)) == found
    assert any("the cluster's description by GKE" in spot for spot in found["not_looked_at"])

    calm = DoctorOperator(task_id="doctor", run=refused, fail_on="image, driver-denied").execute(context())
    assert calm["diagnoses"]
    for fail_on in ("error", "pods-refused-account", ["image", "pods-refused-account"]):
        with pytest.raises(AirflowFailException, match=TOLD):
            DoctorOperator(task_id="doctor", run=refused, fail_on=fail_on).execute(context())
    with pytest.raises(AirflowFailException, match="or a symptom of the doctor"):
        DoctorOperator(task_id="doctor", run=refused, fail_on="nonsense").execute(context())


@pytest.mark.parametrize("sensor", [CheckpointSensor, RestoreSensor])
def test_a_sensor_whose_deadline_passes_says_why(refused: TrainingSpec, sensor: Any) -> None:
    waiting = sensor(task_id="wait", run=refused, timeout=1)
    with pytest.raises(AirflowFailException, match=f"(?s)not seen within 1 s: no checkpoint.*The doctor says.*{TOLD}"):
        waiting.execute_complete(context(), {"kind": "deadline", "message": "no checkpoint"})


def test_a_run_that_never_starts_is_stopped_with_the_reason(refused: TrainingSpec, bare_kubernetes: Any) -> None:
    clinic = Clinic(bare_kubernetes.kubeconfig, "")
    uid = clinic.cluster.get(JOBSETS, refused.name, "default")["metadata"]["uid"]
    launch = LaunchTrainingOperator(task_id="launch", run=refused)
    event = {"kind": "never_starts", "message": "no pod can be made", "uid": uid, "deadline": 0.0}
    with pytest.raises(AirflowFailException, match=f"(?s)was stopped: no pod can be made.*The doctor says.*{TOLD}"):
        launch.execute_complete(context(), event)
    assert clinic.cluster.get(JOBSETS, refused.name, "default")["spec"]["suspend"] is True
    clinic.close()


def test_a_wait_of_provisioning_that_fails_says_why(refused: TrainingSpec) -> None:
    operator = ClusterOperator(task_id="checkpointing", cluster=refused.cluster_spec, mode="apply")
    report = {"mode": "apply", "findings": [], "done": [], "left": []}
    event = {"kind": "deadline", "message": "drivers took more than 600 s", "report": report}
    told = "(?s)drivers took more than 600 s\nThe doctor says:\n.*CheckpointConfiguration everstep: it is not there"
    with pytest.raises(AirflowException, match=told):
        operator.execute_complete(context(), event)


def test_a_doctor_without_a_cluster_hides_no_error(refused: TrainingSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_EVERSTEP_SANDBOX", json.dumps({"conn_type": "kubernetes", "extra": {}}))
    waiting = CheckpointSensor(task_id="wait", run=refused, timeout=1)
    with pytest.raises(AirflowFailException, match="not seen within 1 s: no checkpoint"):
        waiting.execute_complete(context(), {"kind": "deadline", "message": "no checkpoint"})
