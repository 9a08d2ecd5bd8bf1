"""`everstep sandbox up --empty`: a project that gets its cluster, machines, add-ons and rights by calls alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from tests.sandbox.google.empty_project import CLUSTERS, DRIVER, DRIVERS, SLICE, WORKLOADS, Object, Project, until

from everstep_sandbox.google.state import NUMBER, PROJECT
from everstep_sandbox.stack import sweep
from everstep_sandbox.stack.furnish import RequestError

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """An empty project, and in the end one with what the tests have made in it, in their order."""
    made = Project(tmp_path_factory.mktemp("empty"))
    told = made.command("up", "--empty", "--speed=30")
    assert "a project without a cluster" in told
    yield made
    made.command("down")
    assert sweep.survivors(made.directory) == []


def test_empty_project_has_neither_cluster_nor_bucket(project: Project) -> None:
    assert set(project.record.pids) == {"supervisor", "storage", "google"}
    assert project.record.kubernetes == "" and not (project.directory / "kubeconfig").exists()
    assert project.storage("GET", f"/b?project={PROJECT}")["items"] == []
    with pytest.raises(RequestError, match="SERVICE_DISABLED"):
        project.google("GET", CLUSTERS)
    assert "no cluster yet" in project.command("up", "--empty", "--speed=30")


def test_cluster_and_machines_come_with_their_operations(project: Project) -> None:
    operation = project.create_cluster()
    # The server of Google's APIs may end while the cluster is made.
    os.kill(project.record.pids["google"], signal.SIGKILL)
    project.command("up", "--empty", "--speed=30")
    project.done(operation)
    assert project.nodes() == {"gke-tokyo-default-pool-0"}
    made = project.google("GET", f"{CLUSTERS}/tokyo")
    assert project.record.kubernetes.endswith(made["endpoint"])
    project.done(project.google("POST", f"{CLUSTERS}/tokyo/nodePools", {"nodePool": SLICE}))
    assert project.nodes() == {"gke-tokyo-default-pool-0", "gke-tokyo-v6e-0-0", "gke-tokyo-v6e-0-1"}
    labels = project.kubernetes("GET", "/api/v1/nodes/gke-tokyo-v6e-0-1")["metadata"]["labels"]
    assert labels["cloud.google.com/gke-nodepool"] == "v6e-0"
    assert labels["cloud.google.com/gke-tpu-topology"] == "2x4"
    project.done(project.google("POST", f"{CLUSTERS}/tokyo/nodePools/v6e-0:setSize", {"nodeCount": 0}))
    assert project.nodes() == {"gke-tokyo-default-pool-0"}
    project.done(project.google("POST", f"{CLUSTERS}/tokyo/nodePools/v6e-0:setSize", {"nodeCount": 2}))


def test_drivers_are_denied_until_their_principal_is_granted(project: Project) -> None:
    project.create_bucket("backups")
    project.grant("backups", DRIVER.replace(NUMBER, PROJECT).replace(f"{PROJECT}.svc", f"{NUMBER}.svc"))
    project.configure("backups")
    (told, *_) = until(lambda: project.messages("FailedMount"))
    assert told.startswith('MountVolume.SetUp failed for volume "gcs" : rpc error: code = PermissionDenied desc = ')
    assert "Permission 'storage.objects.list' denied on resource (or it may not exist)., forbidden" in told
    pods = project.kubernetes("GET", DRIVERS)["items"]
    assert {pod["status"]["initContainerStatuses"][0]["state"]["waiting"]["reason"] for pod in pods}
    assert project.ready_drivers() == 0
    project.grant("backups", DRIVER)
    until(lambda: project.ready_drivers() == 2)


def test_drivers_get_no_token_without_metadata_server(project: Project) -> None:
    name = f"{CLUSTERS}/tokyo/nodePools/v6e-0"
    project.done(project.google("PUT", name, {"workloadMetadataConfig": {"mode": "GCE_METADATA"}}))
    until(lambda: [one for one in project.messages("FailedMount") if "Unable to generate access token" in one])
    assert project.ready_drivers() == 0
    project.done(project.google("PUT", name, {"workloadMetadataConfig": {"mode": "GKE_METADATA"}}))
    until(lambda: project.ready_drivers() == 2)


def test_training_pods_may_only_do_what_their_account_is_granted(project: Project) -> None:
    script = (
        "import os, urllib.request as u\n"
        "base = os.environ['STORAGE_EMULATOR_HOST'] + '/upload/storage/v1/b/backups/o?uploadType=media&name='\n"
        "for name in ('run/everstep/status.json', 'other/everstep/status.json'):\n"
        "    try: print(name, u.urlopen(u.Request(base + name, b'{}')).status, flush=True)\n"
        "    except u.HTTPError as e: print(name, e.code, flush=True)\n"
    )
    start = "projects/_/buckets/backups/objects/run/everstep/"
    condition = {"title": "run", "expression": f'resource.name.startsWith("{start}")'}
    project.grant("backups", f"{WORKLOADS}/subject/ns/default/sa/default", condition=condition)
    container = {"name": "main", "image": "example", "command": ["python", "-c", script]}
    tolerations = [{"key": "google.com/tpu", "operator": "Exists"}]
    spec = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    project.kubernetes("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "writer"}, "spec": spec})
    pod = "/api/v1/namespaces/default/pods/writer"
    until(lambda: project.kubernetes("GET", pod)["status"]["phase"] == "Succeeded")
    log = subprocess.run(
        ["kubectl", "--kubeconfig", str(project.directory / "kubeconfig"), "logs", "writer"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert log.splitlines() == ["run/everstep/status.json 200", "other/everstep/status.json 403"]


def test_jobset_controller_works_once_its_manifest_is_applied(project: Project) -> None:
    with pytest.raises(RequestError) as missing:
        project.kubernetes("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets")
    assert missing.value.code == 404
    file = project.directory / "jobset.yaml"
    file.write_text(yaml.safe_dump_all(_jobset_manifest()))
    kubectl = ["kubectl", "--kubeconfig", str(project.directory / "kubeconfig")]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", str(file)], check=True, capture_output=True)
    wait = ["wait", "--for=condition=Available", "deployment/jobset-controller-manager", "-n", "jobset-system"]
    subprocess.run([*kubectl, *wait, "--timeout=30s"], check=True, capture_output=True)
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example", "command": ["true"]}]}
    job = {"name": "w", "replicas": 1, "template": {"spec": {"template": {"spec": pod}}}}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "small"},
        "spec": {"replicatedJobs": [job]},
    }
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    project.kubernetes("POST", path, body)
    until(lambda: (project.kubernetes("GET", f"{path}/small").get("status") or {}).get("terminalState") == "Completed")


def _jobset_manifest() -> list[Object]:
    names = {"plural": "jobsets", "singular": "jobset", "kind": "JobSet", "listKind": "JobSetList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    labels = {"control-plane": "controller-manager"}
    manager = {"name": "manager", "image": "registry.k8s.io/jobset/jobset:v0.11.1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [manager]}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset-manager-role"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}},
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "jobsets.jobset.x-k8s.io"},
            "spec": {"group": "jobset.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "jobset-manager-rolebinding"},
            "roleRef": role,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "jobset-controller-manager", "namespace": "jobset-system"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]


def test_add_on_that_is_switched_off_takes_its_kind_and_drivers_along(project: Project) -> None:
    update = {"desiredAddonsConfig": {"highScaleCheckpointingConfig": {"enabled": False}}}
    project.done(project.google("PUT", f"{CLUSTERS}/tokyo", {"update": update}))
    with pytest.raises(RequestError) as missing:
        project.kubernetes("GET", "/apis/checkpointing.gke.io/v1/checkpointconfigurations")
    assert missing.value.code == 404
    assert project.kubernetes("GET", DRIVERS)["items"] == []
    assert "checkpointing" not in project.record.pids


def test_calls_that_change_something_are_noted(project: Project) -> None:
    lines = (project.directory / "google" / "calls.jsonl").read_text().splitlines()
    assert {json.loads(line)["method"] for line in lines} == {"POST", "PUT"}
    noted = [json.loads(line) for line in (project.directory / "storage" / "calls.jsonl").read_text().splitlines()]
    assert [(one["method"], one["path"].removeprefix("/storage/v1")) for one in noted[:2]] == [
        ("POST", "/b"),
        ("PUT", "/b/backups/iam"),
    ]


def test_cluster_that_is_deleted_leaves_the_project_as_it_was(project: Project) -> None:
    project.done(project.google("DELETE", f"{CLUSTERS}/tokyo"))
    assert set(project.record.pids) == {"supervisor", "storage", "google"}
    assert not (project.directory / "kubeconfig").exists()
    assert [one["name"] for one in project.storage("GET", f"/b?project={PROJECT}")["items"]] == ["backups"]
