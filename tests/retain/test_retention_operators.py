"""The operators of retention without a bucket: dry runs, refusals and who is told of them, runs that are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.retain.real_bucket import RUN, RealBucket

from everstep.clients.access import StorageAccess
from everstep.retain import target
from everstep.retain.find_runs import FindRunsOperator
from everstep.retain.operator import PlanRetentionOperator, RetentionRefusedError, SweepOperator
from everstep.retain.plan import verify
from everstep.retain.policy import PERIODS
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError


class TaskInstance:
    """As much of one as links need."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture
def cluster_file(tmp_path: Path, cluster_data: dict[str, Any]) -> str:
    path = tmp_path / "sandbox.yaml"
    path.write_text(yaml.safe_dump(cluster_data))
    return str(path)


@pytest.mark.sandbox
def test_a_sweep_is_a_dry_run_unless_told_otherwise(cloud_storage: Any, cluster_file: str) -> None:
    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    plan = bucket.plan()
    before = bucket.names()
    for apply in (False, "False", ""):
        operator = SweepOperator(
            task_id="sweep", run=f"gs://{bucket.name}/{RUN}", cluster=cluster_file, plan=plan.as_dict(), apply=apply
        )
        done = operator.execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
        assert done["would_sweep"] == [unit.name for unit in plan.swept] != []
    assert bucket.names() == before


@pytest.mark.sandbox
def test_a_refusal_fails_for_good_and_is_told_even_by_a_notifier_that_breaks(
    cloud_storage: Any, cluster_file: str
) -> None:
    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    plan = bucket.plan().as_dict()
    told: list[Any] = []

    def notify(context: Any) -> None:
        told.append(context["exception"].findings)
        raise RuntimeError("the chat is down")

    common: dict[str, Any] = {"task_id": "sweep", "cluster": cluster_file, "on_refusal": notify}
    changed = SweepOperator(run=f"gs://{bucket.name}/{RUN}", plan={**plan, "run": "lm2"}, **common)
    with pytest.raises(RetentionRefusedError, match="was changed"):
        changed.execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
    foreign = SweepOperator(run=f"gs://{bucket.name}/lm2", plan=plan, apply=True, **common)
    with pytest.raises(RetentionRefusedError, match=f"a plan of gs://{bucket.name}/{RUN}"):
        foreign.execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
    assert [len(findings) for findings in told] == [1, 1]


@pytest.mark.sandbox
def test_a_refused_plan_fails_its_task_unless_it_is_to_warn_only(
    cloud_storage: Any, cluster_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    google = {"is_anonymous": True, "project": "everstep", "storage_endpoint": cloud_storage.address}
    monkeypatch.setenv(
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps({"conn_type": "google_cloud_platform", "extra": google})
    )
    retention = {"keep_last": 1, "keep_complete": 1, "max_share": 0.5, "young_hours": 0, **dict.fromkeys(PERIODS, 0)}
    told: list[Any] = []
    common: dict[str, Any] = {
        "task_id": "plan",
        "run": f"gs://{bucket.name}/{RUN}",
        "cluster": cluster_file,
        "retention": retention,
        "on_refusal": lambda context: told.append(context["exception"].findings),
    }
    with pytest.raises(RetentionRefusedError, match="would remove 4 of 5 complete"):
        PlanRetentionOperator(**common).execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
    task = TaskInstance()
    found = PlanRetentionOperator(**common, fail_on_refusal=False).execute({"ti": task})  # type: ignore[typeddict-item]
    assert (found["bucket"], found["run"]) == (bucket.name, RUN)
    [finding] = found["findings"]
    assert "would remove 4 of 5 complete" in finding["found"]
    assert task.pushed["sweeps"] == 0
    assert "would remove 4 of 5 complete" in task.pushed["summary"]
    assert "[warning  ] No retention plan, and nothing is swept" in capsys.readouterr().out
    assert [len(findings) for findings in told] == [1, 1]
    with pytest.raises(FindingsError, match="can't be read"):
        verify(found)


def test_a_run_in_a_bucket_needs_a_cluster_file_and_good_retention(cluster_data: dict[str, Any]) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    operator = SweepOperator(task_id="sweep", run="gs://b/lm", plan={})
    with pytest.raises(AirflowFailException, match="no cluster file is given"):
        operator.execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
    cluster = ClusterSpec(**cluster_data)
    with pytest.raises(FindingsError, match="houry"):
        target.Target.of_url("gs://b/lm", cluster, {"houry": 3})
    with pytest.raises(FindingsError, match="gs://BUCKET/RUN"):
        target.Target.of_url("gs://b/", cluster, None)
    assert target.Target.of_url("gs://b/lm", cluster, {"keep_last": 5}).retention.keep_last == 5


@pytest.mark.sandbox
def test_runs_are_found_by_their_records_and_a_run_file_wins(
    cloud_storage: Any, cluster_data: dict[str, Any], run_data: dict[str, Any], tmp_path: Path
) -> None:
    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    bucket.put("other/everstep/run.json", "{}")
    bucket.put("notes/readme")
    client = StorageAccess(endpoint=cloud_storage.address).open(bucket.name)
    assert sorted(client.run(target.runs_in(bucket.name))) == [RUN, "other"]
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = bucket.name
    for folder, name, data in (("clusters", "sandbox", cluster_data), ("runs", RUN, run_data), ("runs", "bad", {})):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
    files, wrong = target.read_run_files(tmp_path / "dag.py", "runs")
    assert len(wrong) == 1
    assert wrong[0].startswith("runs/bad.yaml")
    clusters = [("clusters/sandbox.yaml", ClusterSpec(**cluster_data))] * 2
    found = target.targets(clusters, {bucket.name: [RUN, "other"]}, files, {"keep_last": 3})
    assert [each["run"] for each in found] == [f"runs/{RUN}.yaml", f"gs://{bucket.name}/other"]
    assert found[1]["retention"] == {"keep_last": 3}


@pytest.mark.sandbox
def test_a_run_that_was_named_and_is_nowhere_is_no_success(
    cloud_storage: Any, tmp_path: Path, cluster_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    google = {"is_anonymous": True, "project": "everstep", "storage_endpoint": cloud_storage.address}
    monkeypatch.setenv(
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps({"conn_type": "google_cloud_platform", "extra": google})
    )
    for configuration in cluster_data["checkpoint_configurations"].values():
        configuration["bucket"] = bucket.name
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster_data))

    def found(only: str) -> list[str]:
        operator = FindRunsOperator(task_id="runs", clusters=[str(path)], only=only)
        return [each["run"] for each in operator.execute({})]  # type: ignore[typeddict-item]

    assert found("") == found(f" {RUN}, ") == [f"gs://{bucket.name}/{RUN}"]
    with pytest.raises(AirflowFailException, match=f"no run lm3 in gs://{bucket.name}; expected the names of runs"):
        found(f"{RUN},lm3")
