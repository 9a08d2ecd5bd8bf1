"""A sandbox that begins as an empty project, and plain requests to its servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sandbox_command import run_sandbox

from everstep_sandbox.google.state import NUMBER, PROJECT
from everstep_sandbox.kubernetes.kubeconfig import read
from everstep_sandbox.stack import record
from everstep_sandbox.stack.furnish import request

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
        return run_sandbox(self.directory, *words)

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
