"""Multi-tier checkpointing inside the whole sandbox: drivers as pods, ranks of JobSets, life of a configuration."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from everstep_sandbox.checkpointing.ramdisk import RamDisk
from everstep_sandbox.checkpointing.scripted_job import text_of, wait_in

pytestmark = pytest.mark.sandbox

GROUP = {"group": "checkpointing.gke.io", "version": "v1", "plural": "checkpointconfigurations"}
JOBSETS = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "namespace": "default", "plural": "jobsets"}
DRIVERS = "gke-managed-checkpointing"
NODES = ("gke-sandbox-v6e-2x4-0-0", "gke-sandbox-v6e-2x4-1-0")
SECONDS = 30.0


class Sandbox:
    """A sandbox of two slices with one host each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run("up", "--slices", "2", "--hosts", "1", "--bucket", "demo-bucket")
        api = config.new_client_from_config(str(directory / "kubeconfig"))
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.custom = client.CustomObjectsApi(api)

    def stop(self) -> None:
        self._run("down")

    def ram_disk(self, node: str) -> Path:
        return RamDisk(self._directory / "nodes" / node).client

    def drivers(self) -> list[Any]:
        return list(self.core.list_namespaced_pod(DRIVERS, label_selector="k8s-app=high-scale-checkpointing").items)

    def configuration(self, name: str) -> dict[str, Any]:
        existing = self.custom.get_cluster_custom_object(**GROUP, name="everstep")
        return {
            "apiVersion": "checkpointing.gke.io/v1",
            "kind": "CheckpointConfiguration",
            "metadata": {"name": name},
            "spec": existing["spec"],
        }

    def wait(self, find: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := find()):
            assert time.monotonic() < deadline, f"not within {SECONDS} s"
            time.sleep(0.05)
        return found

    def _run(self, *arguments: str) -> None:
        verb, *options = arguments
        command = [sys.executable, "-m", "everstep_sandbox", "sandbox", verb, "--directory", str(self._directory)]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, timeout=90)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    sandbox.stop()


def jobset(name: str) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "checkpoint", "csi": {"driver": "multitier-checkpoint.csi.storage.gke.io"}}],
        "containers": [
            {
                "name": "trainer",
                "image": "trainer",
                "command": ["sleep", "1000"],
                "resources": {"limits": {"google.com/tpu": "4"}},
                "volumeMounts": [{"name": "checkpoint", "mountPath": "/local"}],
            }
        ],
    }
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [{"name": "slice", "replicas": 2, "template": {"spec": job}}],
        },
    }


def test_every_node_has_a_driver_that_is_a_pod(sandbox: Sandbox) -> None:
    assert sorted(pod.spec.node_name for pod in sandbox.drivers()) == sorted(NODES)
    (own,) = sandbox.apps.list_namespaced_daemon_set(DRIVERS).items
    uid = sandbox.custom.get_cluster_custom_object(**GROUP, name="everstep")["metadata"]["uid"]
    assert own.metadata.name == f"multitier-driver-{uid}"


def test_pods_of_a_jobset_get_ranks_that_a_restart_keeps(sandbox: Sandbox) -> None:
    sandbox.custom.create_namespaced_custom_object(**JOBSETS, body=jobset("ranked"))
    infos = [sandbox.ram_disk(node) / "jax-init-info.txt" for node in NODES]
    first = [text_of(info).splitlines() for info in infos]
    assert sorted(rank for rank, _ in first) == ["0", "1"]
    assert first[0][1] == first[1][1]
    of_the_set = "jobset.sigs.k8s.io/jobset-name=ranked"
    pods = sandbox.core.list_namespaced_pod("default", label_selector=of_the_set).items
    sandbox.core.delete_namespaced_pod(pods[0].metadata.name, "default")
    second = [wait_in(info.parent, lambda disk: other_than(disk, first)) for info in infos]
    assert [rank for rank, _ in second] == [rank for rank, _ in first]
    assert second[0][1] == second[1][1] != first[0][1]
    sandbox.custom.delete_namespaced_custom_object(**JOBSETS, name="ranked")


def test_an_overlapping_configuration_only_gets_an_event(sandbox: Sandbox) -> None:
    body = sandbox.configuration("second")
    sandbox.custom.create_cluster_custom_object(**GROUP, body=body)
    (event,) = sandbox.wait(
        lambda: [one for one in sandbox.core.list_namespaced_event("default").items if one.reason == "Conflict"]
    )
    assert event.message == "CheckpointConfiguration second overlaps with existing configuration"
    sandbox.custom.delete_cluster_custom_object(**GROUP, name="second")
    sandbox.wait(lambda: gone(sandbox, "second"))
    assert len(sandbox.drivers()) == len(NODES)


def test_a_deleted_configuration_is_gone_after_its_drivers_and_takes_the_ram_disks(sandbox: Sandbox) -> None:
    disk = sandbox.ram_disk(NODES[0])
    (disk / "left-by-a-job").touch()
    body = sandbox.configuration("everstep")
    sandbox.custom.delete_cluster_custom_object(**GROUP, name="everstep")
    sandbox.wait(lambda: gone(sandbox, "everstep"))
    assert sandbox.drivers() == []
    sandbox.custom.create_cluster_custom_object(**GROUP, body=body)
    sandbox.wait(lambda: len(sandbox.drivers()) == len(NODES))
    sandbox.wait(disk.exists)
    assert not (disk / "left-by-a-job").exists()


def other_than(disk: Path, old: list[list[str]]) -> list[str] | None:
    """The rank file's lines, once they are none of the old ones."""
    lines = (disk / "jax-init-info.txt").read_text().splitlines()
    return lines if lines not in old else None


def gone(sandbox: Sandbox, name: str) -> bool:
    items = sandbox.custom.list_cluster_custom_object(**GROUP)["items"]
    return name not in [item["metadata"]["name"] for item in items]
