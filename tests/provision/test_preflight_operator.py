"""The preflight task: worker and triggerer each look from where they are, and all findings are told together."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from tests.provision.test_preflight import subject

from everstep.provision.cloud import reachability
from everstep.provision.operators import PreflightOperator
from everstep.provision.preflight import Subject
from everstep.provision.triggers import ReachTrigger

pytestmark = pytest.mark.sandbox
__all__ = ["subject"]


class TaskInstance:
    """As much of a task instance as the operator needs."""

    dag_id, task_id, run_id, map_index, try_number = "dag", "preflight", "manual__1", -1, 1

    def xcom_push(self, key: str, value: Any) -> None:
        """Take the links."""


def context() -> Any:
    return {"ti": TaskInstance(), "dag_run": None}


@pytest.fixture
def connections(bare_kubernetes: Any, cloud_storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's ways to the cluster and the bucket."""
    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(bare_kubernetes.kubeconfig)}}
    extra = {"is_anonymous": True, "project": "test", "storage_endpoint": cloud_storage.address}
    storage = {"conn_type": "google_cloud_platform", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_EVERSTEP_SANDBOX", json.dumps(kubernetes))
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(storage))


def deferred(subject: Subject) -> tuple[PreflightOperator, ReachTrigger, str]:
    """The task after its checks, and its trigger as the triggerer makes it of what was serialized."""
    operator = PreflightOperator(task_id="preflight", run=subject.spec)
    with pytest.raises(TaskDeferred) as deferral:
        operator.execute(context())
    path, arguments = deferral.value.trigger.serialize()
    assert path.endswith(".ReachTrigger")
    trigger = ReachTrigger(**{**json.loads(json.dumps(arguments)), "dwell": 0.0})
    assert trigger.serialize()[1] == {**arguments, "dwell": 0.0}
    return operator, trigger, deferral.value.method_name


async def event_of(trigger: ReachTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("a trigger without an event")


def test_a_run_in_which_nothing_is_amiss(connections: None, subject: Subject) -> None:
    operator, trigger, method = deferred(subject)
    findings = getattr(operator, method)(context(), asyncio.run(event_of(trigger)))
    assert findings and "error" not in {each["severity"] for each in findings}


def test_a_triggerer_that_does_not_reach_the_cluster_fails_the_task_with_all_findings(
    connections: None, subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator, trigger, method = deferred(subject)
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: "
        "'http://127.0.0.1:9'}}], users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}"
    )
    # The triggerer has its own environment, in which the same connection leads elsewhere.
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(nowhere)}}
    monkeypatch.setenv("AIRFLOW_CONN_EVERSTEP_SANDBOX", json.dumps(connection))
    monkeypatch.setattr(reachability, "TRY_SECONDS", 2.0)
    event = asyncio.run(event_of(trigger))
    with pytest.raises(AirflowFailException, match="no answer from the triggerer") as refusal:
        getattr(operator, method)(context(), event)
    assert "answers as Kubernetes" in str(refusal.value), "what the worker found is told too"


def test_a_task_that_does_not_defer_judges_by_itself(connections: None, subject: Subject) -> None:
    operator = PreflightOperator(task_id="preflight", run=subject.spec, deferrable=False)
    assert "error" not in {each["severity"] for each in operator.execute(context())}
