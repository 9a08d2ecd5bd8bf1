"""The launch operator, task by task, through Airflow connections to a real API and bucket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from everstep.checkpoints.layout import RunFolder
from everstep.clients.resources import JOBSETS
from everstep.launch.operator import LaunchTrainingOperator, holder_of
from everstep.watch.follower import WaitEnd
from everstep.watch.triggers import TrainingTrigger

pytestmark = pytest.mark.sandbox


class TaskInstance:
    """As much of a task instance as the operator needs."""

    dag_id, task_id, run_id, map_index = "dag", "launch", "manual__1", -1

    def __init__(self, try_number: int = 1) -> None:
        self.try_number = try_number
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def context(try_number: int = 1) -> Any:
    return {"ti": TaskInstance(try_number), "dag_run": None}


@pytest.fixture
def operator(
    world: Any, bare_kubernetes: Any, cloud_storage: Any, monkeypatch: pytest.MonkeyPatch
) -> LaunchTrainingOperator:
    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(bare_kubernetes.kubeconfig)}}
    storage = {
        "conn_type": "google_cloud_platform",
        "extra": {"is_anonymous": True, "project": "test", "storage_endpoint": cloud_storage.address},
    }
    monkeypatch.setenv("AIRFLOW_CONN_EVERSTEP_SANDBOX", json.dumps(kubernetes))
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(storage))
    return LaunchTrainingOperator(task_id="launch", run=world.spec)


def deferred(operator: LaunchTrainingOperator, **options: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context(**options))
    return raised.value


def resume(operator: LaunchTrainingOperator, wait: TaskDeferred, kind: str = "ended", **options: Any) -> Any:
    assert isinstance(wait.trigger, TrainingTrigger)
    assert not wait.kwargs, "dag.test() drops them"
    event = {"kind": kind, "message": "m", "uid": wait.trigger.uid, "deadline": wait.trigger.deadline}
    return operator.execute_complete(context(**options), event)


def test_a_launch_defers_with_a_trigger_that_carries_no_secret(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    assert isinstance(wait.trigger, TrainingTrigger)
    _, arguments = wait.trigger.serialize()
    assert arguments["cluster"]["connection"] == "everstep_sandbox"
    assert "token" not in json.dumps(arguments)
    assert arguments["dwell"] >= 10
    assert arguments["uid"] == world.jobset()["metadata"]["uid"]
    assert arguments["deadline"] > time.time() + 13 * 24 * 3600


async def test_the_trigger_reaches_cluster_and_bucket_through_the_connections(
    operator: LaunchTrainingOperator, world: Any
) -> None:
    wait = await asyncio.to_thread(deferred, operator)
    world.end("Completed")
    assert (await wait.trigger.wait())["kind"] == WaitEnd.ENDED


def test_a_completed_run_returns_a_small_summary_and_gives_the_lease_back(
    operator: LaunchTrainingOperator, world: Any
) -> None:
    wait = deferred(operator)
    world.end("Completed")
    summary = resume(operator, wait)
    assert (summary["verdict"], summary["launch"], summary["run"]) == ("completed", 1, world.spec.name)
    assert len(json.dumps(summary)) < 4096
    lease = json.loads(world.bucket.read(RunFolder(world.bucket.name, world.spec.name).lease).body)
    assert lease["holder"] is None


def test_an_event_is_no_verdict_the_object_is_read_afresh(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    with pytest.raises(TaskDeferred) as again:
        resume(operator, wait, WaitEnd.ENDED)
    assert again.value.trigger.serialize() == wait.trigger.serialize()
    world.end("Failed")
    with pytest.raises(AirflowException, match="failed"):
        resume(operator, wait, WaitEnd.ENDED)


def test_a_deleted_jobset_is_a_failure_that_is_not_retried(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    world.cluster.delete(JOBSETS, world.spec.name, "default")
    with pytest.raises(AirflowFailException, match="deleted by somebody"):
        resume(operator, wait, WaitEnd.GONE)


def test_a_failure_is_retried_by_a_new_jobset_until_attempts_are_used_up(
    operator: LaunchTrainingOperator, world: Any
) -> None:
    recovery = world.spec.recovery.model_copy(update={"attempts": 3})
    operator.run = world.spec.model_copy(update={"recovery": recovery}).on(world.spec.cluster_spec)
    wait = deferred(operator)
    first = world.jobset()["metadata"]["uid"]
    world.end("Failed")
    with pytest.raises(AirflowException, match="it starts from step 0") as failed:
        resume(operator, wait)
    assert not isinstance(failed.value, AirflowFailException)
    again = deferred(operator, try_number=2)
    assert world.jobset()["metadata"]["uid"] != first
    world.end("Failed")
    # Tries that only attached again after a lost worker don't count.
    with pytest.raises(AirflowException, match="it starts from step 0") as failed:
        resume(operator, again, try_number=8)
    assert not isinstance(failed.value, AirflowFailException)
    last = deferred(operator, try_number=9)
    world.end("Failed")
    with pytest.raises(AirflowFailException, match=r"recovery\.attempts = 3 are used up"):
        resume(operator, last, try_number=9)


def test_the_same_failure_in_two_launches_without_a_step_gained_is_final(
    operator: LaunchTrainingOperator, world: Any
) -> None:
    folder = RunFolder(world.bucket.name, world.spec.name)
    for launch in (1, 2):
        wait = deferred(operator, try_number=launch)
        end = {"code": 70, "name": "USER_EXCEPTION", "reason": "ValueError: no", "at": "2026-11-29T10:00:00Z"}
        report = {"rank": 0, "restored_tier": "fresh", "last_step": 7, "ended": end}
        world.bucket.write(folder.attempt_node(launch, 0, 0), report, generation=None)
        world.end("Failed")
        with pytest.raises(AirflowException, match="ValueError: no") as failed:
            resume(operator, wait, try_number=launch)
        assert isinstance(failed.value, AirflowFailException) is (launch == 2)


def test_a_run_that_gets_nowhere_is_suspended_and_kept(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    with pytest.raises(AirflowFailException, match="was stopped: m"):
        resume(operator, wait, WaitEnd.NO_PROGRESS)
    jobset = world.jobset()
    assert jobset["spec"]["suspend"] is True
    assert jobset["metadata"]["annotations"]["everstep.dev/stopped"] == "m"


def test_a_run_past_its_deadline_goes_on_and_the_task_fails(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    with pytest.raises(AirflowFailException, match="it goes on"):
        resume(operator, wait, WaitEnd.DEADLINE)
    assert not world.jobset()["spec"].get("suspend")


def test_a_broken_wait_is_retried_and_attaches(operator: LaunchTrainingOperator, world: Any) -> None:
    wait = deferred(operator)
    with pytest.raises(AirflowException, match="the run goes on") as failed:
        resume(operator, wait, WaitEnd.ERROR)
    assert not isinstance(failed.value, AirflowFailException)
    assert deferred(operator, try_number=2).trigger.uid == wait.trigger.uid


def test_a_launch_without_deferral_waits_in_place(operator: LaunchTrainingOperator, world: Any) -> None:
    operator.deferrable = False

    def end_when_there() -> None:
        while world.jobset() is None:
            time.sleep(0.05)
        world.end("Completed")

    thread = threading.Thread(target=end_when_there)
    thread.start()
    assert operator.execute(context())["verdict"] == "completed"
    thread.join()


def test_what_cannot_run_is_not_created_and_fails_for_good(
    operator: LaunchTrainingOperator, world: Any, cloud_storage: Any
) -> None:
    cluster = world.spec.cluster_spec
    configuration = cluster.checkpoint_configurations["everstep"].model_copy(update={"bucket": "not-there"})
    moved = cluster.model_copy(update={"checkpoint_configurations": {"everstep": configuration}})
    operator.run = world.spec.on(moved)
    with pytest.raises(AirflowFailException):
        operator.execute(context())
    assert world.jobset() is None


def test_a_cluster_that_refuses_jobsets_is_told_before_anything_is_made(
    operator: LaunchTrainingOperator, world: Any, bare_kubernetes: Any
) -> None:
    bare_kubernetes.fault(match="POST .*/jobsets", status=403, times=1)
    with pytest.raises(AirflowFailException, match=r"a new JobSet: can't be looked at.*grant it to the launcher"):
        operator.execute(context())
    folder = RunFolder(world.bucket.name, world.spec.name)
    assert (world.jobset(), world.bucket.read(folder.run_record)) == (None, None)
    assert json.loads(world.bucket.read(folder.lease).body)["holder"] is None


def test_bad_overrides_fail_for_good_with_all_findings(operator: LaunchTrainingOperator, world: Any) -> None:
    operator.overrides = '{"final_step": 0, "trainer.imge": "x"}'
    with pytest.raises(AirflowFailException, match=r"(?s)2 errors.*did you mean 'image'"):
        operator.execute(context())
    assert world.jobset() is None


def test_the_holder_is_the_same_over_tries_and_differs_between_airflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://one.example/")
    one = holder_of(context())
    assert holder_of(context(try_number=2)) == one
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://other.example/")
    assert holder_of(context()) != one
