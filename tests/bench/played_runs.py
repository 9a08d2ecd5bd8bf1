"""Runs for the load test: on a real control plane, or played by hand on the sandbox's API where there is none."""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from tests.bench.api_server import JOBSETS, MERGE_PATCH, ApiServer, Object, Refused, in_threads
from tests.bench.simulated_nodes import end_pod
from tests.bench.waited_objects import MANAGER, POD, terminal

from everstep.launch import labels

NAMESPACE = "default"
_PATH = f"{JOBSETS}/namespaces/{NAMESPACE}/jobsets"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Runs(Protocol):
    """JobSets with pods. Each method returns when it has been asked for; a watch tells when it has been done."""

    def create(self, name: str, slices: int, nodes: int) -> str:
        """Create a run of so many slices and nodes in each; return its uid."""

    def lose_a_pod(self, name: str) -> None:
        """Let one pod fail: the run restarts whole the first time, and fails the second time."""

    def complete(self, name: str) -> None:
        """Let all pods succeed."""


class ControlledRuns:
    """Runs of which the real controllers make, place and delete each pod."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def create(self, name: str, slices: int, nodes: int) -> str:
        uid: str = self._api.call("POST", _PATH, jobset(name, slices, nodes))["metadata"]["uid"]
        return uid

    def lose_a_pod(self, name: str) -> None:
        end_pod(self._api, self._pods(name, 1)[0], 1)

    def complete(self, name: str) -> None:
        pods = self._pods(name, 500)
        in_threads(lambda number: end_pod(self._api, pods[number], 0), len(pods))

    def _pods(self, name: str, most: int) -> list[Object]:
        found: list[Object] = self._api.call("GET", f"{_PODS}?labelSelector={_selector(name)}&limit={most}")["items"]
        if not found:
            raise Refused(f"JobSet {name} has no pods")
        return found


class PlayedRuns:
    """Runs without controllers: this process writes what they would write."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._shapes: dict[str, tuple[int, int]] = {}
        self._restarts: dict[str, int] = {}

    def create(self, name: str, slices: int, nodes: int) -> str:
        made = jobset(name, slices, nodes)
        made["spec"]["managedBy"] = MANAGER
        uid: str = self._api.call("POST", _PATH, made)["metadata"]["uid"]
        self._shapes[name], self._restarts[name] = (slices, nodes), 0
        self._tell(name, ready=0)
        self._start(name)
        return uid

    def lose_a_pod(self, name: str) -> None:
        end_pod(self._api, self._api.call("GET", f"{_PODS}?labelSelector={_selector(name)}&limit=1")["items"][0], 1)
        if self._restarts[name]:
            self._api.patch_status(f"{_PATH}/{name}", terminal("Failed", "FailedJobs", "jobset failed"))
            return
        self._restarts[name] += 1
        self._tell(name, ready=0)
        self._api.call("DELETE", f"{_PODS}?labelSelector={_selector(name)}")
        self._start(name)

    def complete(self, name: str) -> None:
        self._api.patch_status(f"{_PATH}/{name}", terminal("Completed", "AllJobsCompleted", "jobset completed"))

    def _start(self, name: str) -> None:
        slices, nodes = self._shapes[name]
        in_threads(lambda number: self._start_pod(name, *divmod(number, nodes)), slices * nodes)
        self._tell(name, ready=slices)

    def _start_pod(self, name: str, slice_index: int, node: int) -> None:
        pod = f"{name}-slice-{slice_index}-{node}-{uuid.uuid4().hex[:5]}"
        described = {
            labels.JOBSET_NAME: name,
            labels.JOB_INDEX: str(slice_index),
            labels.RESTART_ATTEMPT: str(self._restarts[name]),
        }
        metadata = {"name": pod, "labels": described, "annotations": {labels.COMPLETION_INDEX: str(node)}}
        self._api.call("POST", _PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._api.call("PATCH", f"{_PODS}/{pod}/status", {"status": status}, MERGE_PATCH)

    def _tell(self, name: str, *, ready: int) -> None:
        slices, _ = self._shapes[name]
        found = {"name": "slice", "ready": ready, "active": slices, "failed": 0, "succeeded": 0, "suspended": 0}
        self._api.patch_status(f"{_PATH}/{name}", {"restarts": self._restarts[name], "replicatedJobsStatus": [found]})


def jobset(name: str, slices: int, nodes: int) -> dict[str, Any]:
    """Return a JobSet as Everstep launches it, which restarts once."""
    template = {"parallelism": nodes, "completions": nodes, "backoffLimit": 0, "template": {"spec": POD}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {labels.RUN: name, labels.OWNER: labels.owner_hash("bench")},
            "annotations": {labels.LAUNCH: "1", labels.HOLDER: "bench"},
        },
        "spec": {
            "failurePolicy": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": template}}],
        },
    }


def _selector(name: str) -> str:
    return f"{labels.JOBSET_NAME}%3D{name}"
