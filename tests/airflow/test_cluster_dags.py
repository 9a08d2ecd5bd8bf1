"""The DAGs for clusters in a real Airflow, over the life of one cluster: from an empty project until it is taken back.

The tests go on where the one before them has ended.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.airflow.cluster_platform import CLUSTER, DagRun, Platform, small_dags, until
from tests.airflow.conftest import Run
from tests.provision.provisioned_project import ProvisionedProject

from everstep_sandbox.airflow_stack import AirflowError

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1200)]

OLD, NEW = "1.34.1-gke.1829001", "1.35.0-gke.2398000"
CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
# A triggerer that was killed is noticed after ten seconds instead of thirty.
OPTIONS = {"AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10"}
DAGS = ("provision_checkpointing", "upgrade_cluster", "remove_checkpointing", "train_resilient")


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[Future[dict[str, Any]]]:
    """What `everstep provision` makes of the same files in another project, provisioned while Airflow starts."""

    def provisioned(directory: Path) -> dict[str, Any]:
        small_dags(directory)
        project = ProvisionedProject(directory, "sandbox")
        project.up()
        try:
            project.provision()
            return project.state()
        finally:
            project.command("down")

    with tempfile.TemporaryDirectory(prefix="everstep-") as directory, ThreadPoolExecutor() as pool:
        yield pool.submit(provisioned, Path(directory))


@pytest.fixture(scope="module")
def platform(undisturbed: object) -> Iterator[Platform]:
    # Unix sockets below it need a short path, which pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="everstep-", ignore_cleanup_errors=True) as directory:
        started, before = Platform(Path(directory), OPTIONS), dict(os.environ)
        try:
            os.environ.update(started.client_environment())
            started.airflow.start()
            for dag_id in DAGS:
                started.airflow.wait_for_dag(dag_id)
            yield started
        finally:
            started.stop()
            os.environ.clear()
            os.environ.update(before)


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("provision_checkpointing", {"mode": "now"}),
        ("provision_checkpointing", {"cluster": "clusters/nowhere.yaml"}),
        ("provision_checkpointing", {"version": "latest"}),
        ("provision_checkpointing", {"system_nodes": 0}),
        ("provision_checkpointing", {"system_machine_type": "e2 standard"}),
        ("upgrade_cluster", {}),
        ("upgrade_cluster", {"version": "1.35"}),
        ("remove_checkpointing", {"force": "perhaps"}),
    ],
)
def test_a_form_that_is_filled_in_wrongly_starts_nothing(platform: Platform, dag_id: str, conf: dict[str, Any]) -> None:
    with pytest.raises(AirflowError, match="answered 400"):
        platform.airflow.trigger(dag_id, {"cluster": CLUSTER, "mode": "apply", **conf})
    assert platform.project.calls() == []


@pytest.mark.parametrize("mode", ["check", "emit"])
def test_looking_at_an_empty_project_changes_nothing(platform: Platform, mode: str) -> None:
    run = DagRun(platform, "provision_checkpointing", mode)
    summary = run.succeed()
    assert (summary["changed"], summary["left"]) == (0, 10)
    wanted = [f"{row['done']} {row['object']}" for row in summary["rows"]]
    assert wanted == [
        "no: enable APIs of project everstep-sandbox",
        "no: create bucket everstep-demo",
        "no: create cluster sandbox",
        "no: create node pool v6e-2x4-0",
        "no: create node pool v6e-2x4-1",
        "no: grant bucket everstep-demo",
        "no: install JobSet controller",
        "no: create PriorityClass training-high",
        "no: create PriorityClass training-low",
        "no: create CheckpointConfiguration everstep",
    ]
    emitted = "gcloud container clusters create sandbox" in run.log("cluster")
    assert emitted == (mode == "emit")
    assert platform.project.calls() == []


def test_killed_in_the_middle_of_changes_it_ends_where_an_undisturbed_run_does(
    platform: Platform, undisturbed: Future[dict[str, Any]]
) -> None:
    project = platform.project
    project.delay_answers(2.0)
    run = DagRun(platform, "provision_checkpointing", "apply")
    killed = {task: run.kill_at_next_change(task) for task in ("cluster", "node_pools")}
    # Tried again, it makes the second node pool, and waits for that in a triggerer, which is lost too.
    until(lambda: run.task("node_pools") == "deferred", 240, run.explain)
    platform.airflow.kill_component("triggerer")
    platform.airflow.start_component("triggerer")
    project.delay_answers(2.0)
    killed["jobset"] = run.kill_at_next_change("jobset")
    killed["checkpointing"] = run.kill_at_next_change("checkpointing")
    summary = run.succeed()
    project.answer_at_once()

    clusters = "/v1/projects/everstep-sandbox/locations/us-east5-a/clusters"
    assert killed == {
        "cluster": f"POST {clusters}",
        "node_pools": f"POST {clusters}/sandbox/nodePools",
        "jobset": "create namespaces jobset-system",
        "checkpointing": "create checkpointconfigurations everstep",
    }
    assert min(run.tries(task) for task in killed) > 1
    state = project.state()
    assert state["ready drivers"] == state["drivers"] == 4
    assert state == undisturbed.result()
    assert Counter(project.calls()) == Counter(
        [
            f"POST {clusters}",
            f"POST {clusters}/sandbox/nodePools",
            f"POST {clusters}/sandbox/nodePools",
            "POST /storage/v1/b",
            "POST /v1/projects/everstep-sandbox/services:batchEnable",
            "PUT /storage/v1/b/everstep-demo/iam",
            "create checkpointconfigurations everstep",
            "create customresourcedefinitions jobsets.jobset.x-k8s.io",
            "create deployments jobset-controller-manager",
            "create namespaces jobset-system",
            "create priorityclasses training-high",
            "create priorityclasses training-low",
            "patch deployments jobset-controller-manager",
        ]
    )
    assert summary["left"] == 0


@pytest.fixture(scope="module")
def project(platform: Platform) -> ProvisionedProject:
    """The project, provisioned if no test before this one has done it."""
    if not platform.project.calls():
        platform.project.provision()
    return platform.project


@pytest.fixture(scope="module")
def training(platform: Platform, project: ProvisionedProject) -> Run:
    """A run that trains on the cluster."""
    # Of the runs beside the cluster files, whose pods provisioning has given access to their folder.
    started = Run(platform, "stdlib-lm", steps=100_000).trigger()
    started.wait_until_trained()
    return started


def test_triggered_again_it_changes_nothing(platform: Platform, project: ProvisionedProject) -> None:
    calls, asked = list(project.calls()), project.requests()
    summary = DagRun(platform, "provision_checkpointing", "apply").succeed()
    assert summary == {"changed": 0, "left": 0, "rows": []}
    assert project.calls() == calls
    assert project.requests() == asked


def test_an_upgrade_under_a_live_run_loses_nothing_that_it_trained(
    platform: Platform, project: ProvisionedProject, training: Run
) -> None:
    (configuration,) = project.kubernetes("GET", CONFIGURATIONS)["items"]
    jobset = training.uid
    calls = list(project.calls())

    check = DagRun(platform, "upgrade_cluster", "check", version=NEW).succeed()
    assert [f"{row['done']} {row['object']}" for row in check["rows"]] == [
        "no: save JobSet default/stdlib-lm",
        "no: delete CheckpointConfiguration everstep",
        "no: upgrade cluster sandbox",
        "no: upgrade node pool v6e-2x4-0",
        "no: upgrade node pool v6e-2x4-1",
    ]
    assert check["changed"] == 0 and project.calls() == calls

    project.delay_answers(2.0)
    upgrade = DagRun(platform, "upgrade_cluster", "apply", version=NEW)
    saved = upgrade.kill_at_next_change("prepare")
    killed = upgrade.kill_at_next_change("finish", 600)
    upgrade.succeed(600)
    project.answer_at_once()
    assert saved.startswith("patch pods stdlib-lm-")
    assert killed == "create checkpointconfigurations everstep"

    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in _slice_nodes(platform)} == {f"v{NEW}"}
    (renewed,) = project.kubernetes("GET", CONFIGURATIONS)["items"]
    assert renewed["metadata"]["uid"] != configuration["metadata"]["uid"]
    assert training.uid == jobset, "the same JobSet goes on"
    prepared = platform.airflow.result(upgrade.dag_id, upgrade.run_id, "prepare")["done"]
    (suspended,) = (change["found"] for change in prepared if change["action"] == "suspend")
    training.wait_for(lambda: suspended == f"running, step {_restored_step(training)} saved", 240)
    training.wait_for(lambda: training.step > _restored_step(training), 120)
    assert training.tasks["launch"] == "deferred", training.explain()


def _slice_nodes(platform: Platform) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = platform.project.kubernetes("GET", "/api/v1/nodes")["items"]
    return [node for node in nodes if "v6e" in node["metadata"]["name"]]


def _restored_step(training: Run) -> int:
    """The step that every node has restored; 0 as long as they have not, or not the same one."""
    attempt = training.view.attempt()
    reports = training.view.node_reports(attempt) if attempt is not None else []
    steps = {int(report.get("restored_step") or 0) for report in reports}
    return steps.pop() if len(steps) == 1 else 0


def test_drivers_are_removed_only_when_nobody_uses_them(
    platform: Platform, project: ProvisionedProject, training: Run
) -> None:
    refused = DagRun(platform, "remove_checkpointing", "apply")
    assert refused.end() == "failed"
    assert "used by JobSet default/stdlib-lm" in refused.log("remove")
    assert refused.tries("remove") == 1, "another try can't help"
    training.discard()

    removal = DagRun(platform, "remove_checkpointing", "apply")
    project.delay_answers(2.0)
    assert removal.kill_at_next_change("remove") == "delete checkpointconfigurations everstep"
    removal.succeed()
    project.answer_at_once()
    assert project.kubernetes("GET", CONFIGURATIONS)["items"] == []
    assert project.state()["drivers"] == 0
    assert list(project.state()["buckets"]) == ["everstep-demo"]

    calls, asked = list(project.calls()), project.requests()
    assert DagRun(platform, "remove_checkpointing", "apply").succeed()["changed"] == 0
    assert project.calls() == calls and project.requests() == asked
