"""`everstep sandbox fault …` for each symptom of a wrong setup, on one furnished sandbox."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox_command import run_sandbox

from everstep_sandbox.kubernetes.kubeconfig import read
from everstep_sandbox.stack import record, sweep
from everstep_sandbox.stack.furnish import RequestError, request

pytestmark = pytest.mark.sandbox

Object = dict[str, Any]

CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
DRIVERS = "/api/v1/namespaces/gke-managed-checkpointing"


class Sandbox:
    """One node, started once for all tests here."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, expect: int = 0) -> str:
        return run_sandbox(self.directory, *words, expect=expect)

    def fault(self, *words: str) -> Object:
        done: Object = json.loads(self("fault", *words))
        return done

    def kubernetes(self, method: str, path: str, body: Object | None = None) -> Object:
        address = read(self.directory / "kubeconfig")
        return request(method, address.server + path, body, address.token)

    def messages(self, namespace: str, *reasons: str) -> str:
        events = self.kubernetes("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return "\n".join(event["message"] for event in events if event["reason"] in reasons)

    def drivers_ready(self) -> int:
        return sum(
            any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
            for pod in self.kubernetes("GET", f"{DRIVERS}/pods")["items"]
        )


def until(holds: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path_factory.mktemp("symptoms"))
    made("up", "--slices=1", "--hosts=1", "--speed=30")
    yield made
    made("down")
    assert sweep.survivors(made.directory) == []


def test_furnished_sandbox_shows_its_cluster_in_gkes_api(sandbox: Sandbox) -> None:
    known = record.read(sandbox.directory)
    assert known is not None
    path = "/v1/projects/everstep-sandbox/locations/us-east5-a/clusters/sandbox"
    cluster = request("GET", known.google + path)
    assert cluster["status"] == "RUNNING" and cluster["addonsConfig"]["highScaleCheckpointingConfig"]["enabled"]
    assert [(pool["name"], pool["initialNodeCount"]) for pool in cluster["nodePools"]] == [("v6e-2x4-0", 1)]


def test_driver_denied(sandbox: Sandbox) -> None:
    assert sandbox.fault("driver-denied")["restarted"] == 1
    namespace = "gke-managed-checkpointing"
    until(lambda: "Permission 'storage.objects.list' denied" in sandbox.messages(namespace, "FailedMount"))
    assert sandbox.drivers_ready() == 0
    sandbox.fault("driver-denied", "--undo")
    until(lambda: sandbox.drivers_ready() == 1)


def test_token_failure(sandbox: Sandbox) -> None:
    sandbox.fault("token-failure")
    namespace = "gke-managed-checkpointing"
    until(lambda: "Unable to generate access token" in sandbox.messages(namespace, "FailedMount"))
    sandbox.fault("token-failure", "--undo")
    until(lambda: sandbox.drivers_ready() == 1)


def test_image_missing(sandbox: Sandbox) -> None:
    sandbox.fault("image-missing", "^nowhere/")
    container = {"name": "main", "image": "nowhere/train:1", "command": ["true"]}
    spec = {"restartPolicy": "Never", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    pods = "/api/v1/namespaces/default/pods"
    sandbox.kubernetes("POST", pods, {"metadata": {"name": "image"}, "spec": spec})

    def waiting() -> str:
        status = sandbox.kubernetes("GET", f"{pods}/image")["status"]
        states = [one["state"].get("waiting", {}) for one in status.get("containerStatuses", ())]
        return str(states[0].get("reason")) if states else ""

    until(lambda: waiting() == "ImagePullBackOff")
    told = sandbox.messages("default", "Failed", "BackOff")
    assert 'Failed to pull image "nowhere/train:1"' in told and "Error: ErrImagePull" in told
    sandbox.fault("image-missing", "--undo")
    until(lambda: sandbox.kubernetes("GET", f"{pods}/image")["status"]["phase"] == "Succeeded")

    spec["containers"] = [{**container, "image": "Registry/Train:1"}]
    sandbox.kubernetes("POST", pods, {"metadata": {"name": "name"}, "spec": spec})
    until(lambda: "Error: InvalidImageName" in sandbox.messages("default", "Failed"))


def test_webhook_rejects(sandbox: Sandbox) -> None:
    sandbox.fault("webhook-rejects", "--message", "no more than one leader")
    with pytest.raises(RequestError, match="denied the request: no more than one leader") as refused:
        sandbox.kubernetes("POST", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", {})
    assert refused.value.code == 403


def test_replicator_says(sandbox: Sandbox) -> None:
    done = sandbox.fault("replicator-says", "gke-sandbox-v6e-2x4-0-0", "failed", "bucket is NOT HNS-enabled")
    assert "[CRT]" in Path(done["file"]).read_text() and done["file"].endswith("/replicator.failed")
    assert "has no RAM disk" in sandbox("fault", "replicator-says", "nobody", "errors", "x", expect=1)


def test_node_pool_fails(sandbox: Sandbox) -> None:
    sandbox.fault("node-pool-fails", "stockout")
    known = record.read(sandbox.directory)
    assert known is not None
    parent = "/v1/projects/everstep-sandbox/locations/us-east5-a"
    body = {"nodePool": {"name": "more", "initialNodeCount": 1}}
    operation = request("POST", f"{known.google}{parent}/clusters/sandbox/nodePools", body)
    path = f"{known.google}{parent}/operations/{operation['name']}"
    until(lambda: request("GET", path)["status"] == "DONE")
    assert "GCE_STOCKOUT" in request("GET", path)["error"]["message"]


def test_bucket_flat(sandbox: Sandbox) -> None:
    assert sandbox.fault("bucket-flat", "everstep-demo") == {"bucket": "everstep-demo", "hierarchical": False}
    known = record.read(sandbox.directory)
    assert known is not None
    assert "hierarchicalNamespace" not in request("GET", f"{known.storage}/storage/v1/b/everstep-demo")
    assert "does not exist" in sandbox("fault", "bucket-flat", "nothing-like-it", expect=1)


def test_stuck_finalizer_and_add_on_off(sandbox: Sandbox) -> None:
    sandbox.fault("stuck-finalizer", "everstep")
    sandbox.kubernetes("DELETE", f"{CONFIGURATIONS}/everstep")
    until(
        lambda: (
            sandbox.kubernetes("GET", "/apis/apps/v1/namespaces/gke-managed-checkpointing/daemonsets")["items"] == []
        )
    )
    left = sandbox.kubernetes("GET", f"{CONFIGURATIONS}/everstep")["metadata"]
    assert left["deletionTimestamp"] and "everstep.dev/stuck" in left["finalizers"]
    sandbox.fault("stuck-finalizer", "everstep", "--undo")
    until(lambda: sandbox.kubernetes("GET", CONFIGURATIONS)["items"] == [])
    assert sandbox.fault("add-on-off")["status"] == "DONE"
    with pytest.raises(RequestError, match="404"):
        sandbox.kubernetes("GET", CONFIGURATIONS)
