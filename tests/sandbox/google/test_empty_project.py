"""`everstep sandbox up --empty`: a project that gets its cluster, machines, add-ons and rights by calls alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep_sandbox.google.state import NUMBER, PROJECT
from everstep_sandbox.kubernetes.kubeconfig import read
from everstep_sandbox.stack import record, sweep
from everstep_sandbox.stack.furnish import RequestError, request

pytestmark = pytest.mark.sandbox

Object = dict[str, Any]

CLUSTERS = f"/v1/projects/{PROJECT}/locations/us-east5-a/clusters"
WORKLOADS = (
    f"principal://iam.googleapis.com/projects/{NUMBER}/locations/global/workloadIdentityPools/{PROJECT}.svc.id.goog"
)
DRIVER = f"{WORKLOADS}/subject/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node"
DRIVERS = "/api/v1/namespaces/gke-managed-checkpointing/pods"
SLICE = {
    "name": "v6e-0",
    "initialNodeCount": 2,
    "config": {"machineType": "ct6e-standard-4t"},
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4"},
}


class Project:
    """A sandbox that began as an empty project, with plain requests to its servers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "everstep_sandbox", "sandbox", *words, f"--directory={self.directory}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def record(self) -> record.Record:
        found = record.read(self.directory)
        assert found is not None
        return found

    def google(self, method: str, path: str, body: Object | None = None) -> Object:
        return request(method, self.record.google + path, body)

    def storage(self, method: str, path: str, body: Object | None = None) -> Object:
        return request(method, f"{self.record.storage}/storage/v1{path}", body)

    def kubernetes(self, method: str, path: str, body: Object | None = None) -> Object:
        address = read(self.directory / "kubeconfig")
        return request(method, address.server + path, body, address.token, address.context)

    def done(self, operation: Object) -> Object:
        until(lambda: self.operation(operation)["status"] == "DONE", 90)
        ended = self.operation(operation)
        assert "error" not in ended, ended
        return ended

    def operation(self, operation: Object) -> Object:
        path = f"/v1/projects/{PROJECT}/locations/us-east5-a/operations/{operation['name']}"
        return self.google("GET", path)

    def create_cluster(self, **fields: Any) -> Object:
        self.google("POST", f"/v1/projects/{PROJECT}/services/container.googleapis.com:enable", {})
        addons = {"highScaleCheckpointingConfig": {"enabled": True}, "gcsFuseCsiDriverConfig": {"enabled": True}}
        body = {
            "name": "tokyo",
            "initialNodeCount": 1,
            "addonsConfig": addons,
            "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
            **fields,
        }
        return self.google("POST", CLUSTERS, {"cluster": body})

    def create_bucket(self, name: str) -> None:
        uniform = {"uniformBucketLevelAccess": {"enabled": True}}
        body = {"name": name, "hierarchicalNamespace": {"enabled": True}, "iamConfiguration": uniform}
        self.storage("POST", f"/b?project={PROJECT}", {**body, "location": "us-east5"})

    def grant(self, bucket: str, member: str, role: str = "roles/storage.objectUser", **more: Any) -> None:
        policy = self.storage("GET", f"/b/{bucket}/iam?optionsRequestedPolicyVersion=3")
        bindings = [*policy["bindings"], {"role": role, "members": [member], **more}]
        self.storage("PUT", f"/b/{bucket}/iam", {**policy, "version": 3, "bindings": bindings})

    def configure(self, bucket: str, name: str = "cpc") -> None:
        spec = {
            "cloudStorageBucketName": bucket,
            "nodeSelector": {"node.kubernetes.io/instance-type": "ct6e-standard-4t"},
            "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
            "inMemoryVolumeSize": "64Mi",
        }
        body = {"apiVersion": "checkpointing.gke.io/v1", "kind": "CheckpointConfiguration", "metadata": {"name": name}}
        self.kubernetes("POST", "/apis/checkpointing.gke.io/v1/checkpointconfigurations", {**body, "spec": spec})

    def ready_drivers(self) -> int:
        return sum(
            any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
            for pod in self.kubernetes("GET", DRIVERS)["items"]
        )

    def messages(self, reason: str) -> list[str]:
        events = self.kubernetes("GET", "/api/v1/namespaces/gke-managed-checkpointing/events")["items"]
        return [event["message"] for event in events if event["reason"] == reason]

    def nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.kubernetes("GET", "/api/v1/nodes")["items"]}


def until(holds: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


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
