"""Steps inside a cluster on a whole sandbox: from nothing to a ready driver, no change at a second run, and removal."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.clients.errors import RemoteError
from everstep.clients.kubernetes import KubernetesClient, Object
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBSETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from everstep.provision.changes import Mode, Step
from everstep.provision.everything import provision
from everstep.provision.in_cluster import configuration, waits
from everstep.provision.in_cluster.steps import checkpointing_steps, in_cluster_steps, jobset_steps
from everstep.provision.removal import removal_steps
from everstep.provision.site import Site, load_site
from everstep.provision.steps import Report, survey
from everstep.spec.findings import FindingsError

pytestmark = pytest.mark.sandbox

MANIFEST = [
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "jobset-controller-manager", "namespace": "jobset-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "jobset"}},
            "template": {
                "metadata": {"labels": {"app": "jobset"}},
                "spec": {"containers": [{"name": "manager", "image": "registry.k8s.io/jobset/jobset:v0.11.1"}]},
            },
        },
    },
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "jobset-controller-manager", "namespace": "jobset-system"},
    },
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "jobsets.jobset.x-k8s.io"},
        "spec": {
            "group": "jobset.x-k8s.io",
            "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset", "listKind": "JobSetList"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1alpha2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    },
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}},
]


class Place:
    """A sandbox of two slices with one host each, and the cluster file for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "sandbox" / "kubeconfig"
        self.folder = directory / "clusters"
        self.folder.mkdir()
        (self.folder / "jobset.yaml").write_text(yaml.safe_dump_all(MANIFEST))
        self._run("up", "--slices", "2", "--hosts", "1", "--bucket", "demo-bucket")

    def stop(self) -> None:
        self._run("down")

    def _run(self, verb: str, *options: str) -> None:
        command = [sys.executable, "-m", "everstep_sandbox", "sandbox", verb]
        command += ["--directory", str(self.directory / "sandbox"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=90)

    def file(self, data: dict[str, Any]) -> Path:
        path = self.folder / "sandbox.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    @contextmanager
    def site(self, data: dict[str, Any]) -> Iterator[Site]:
        with load_site(self.file(data), kubeconfig=str(self.kubeconfig)) as site:
            yield site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("in-cluster"))
    try:
        yield place
    finally:
        place.stop()


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "POLL_SECONDS", 0.1)


@pytest.fixture
def data(cluster_data: dict[str, Any]) -> dict[str, Any]:
    pool = cluster_data["pools"]["v6e-2x4"]
    pool |= {"topology": "2x2", "nodes_per_slice": 1}
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = "demo-bucket"
    return cluster_data


def carry_out(place: Place, data: dict[str, Any], steps: Callable[[Site], list[Step]]) -> Report:
    with place.site(data) as site:
        return provision(site, steps(site), Mode.APPLY, lambda line: None)


def look(place: Place, data: dict[str, Any], steps: Callable[[Site], list[Step]]) -> Report:
    with place.site(data) as site:
        return survey(steps(site), Mode.CHECK)


def done(report: Report) -> list[tuple[str, str]]:
    return [(one["action"], one["object"]) for one in report.done]


def client_of(place: Place) -> KubernetesClient:
    from everstep.clients.access import ClusterAccess

    return ClusterAccess.of_kubeconfig(place.kubeconfig).open()


def drivers(client: KubernetesClient) -> list[Object]:
    return client.list_all(PODS, CHECKPOINTING_NAMESPACE, labels="k8s-app=high-scale-checkpointing")


def using_jobset(name: str, *, queue: str | None = None) -> Object:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"node.kubernetes.io/instance-type": "ct6e-standard-4t"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "checkpoint", "csi": {"driver": "multitier-checkpoint.csi.storage.gke.io"}}],
        "containers": [{"name": "trainer", "image": "x", "command": ["sleep", "1000"]}],
    }
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 1, "template": {"spec": job}}]},
    }


def eventually(holds: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_that_is_not_there_still_shows_all_that_would_be_made(place: Place, data: dict[str, Any]) -> None:
    data["jobset"] = {"manifest": "jobset.yaml"}
    with load_site(place.file(data), kubeconfig=str(place.directory / "nowhere")) as site:
        report = survey(in_cluster_steps(site), Mode.EMIT)
    assert [change.object for change in report.left] == [
        "JobSet controller",
        "PriorityClass training-high",
        "PriorityClass training-low",
        "CheckpointConfiguration everstep",
    ]
    assert [str(finding.severity) for finding in report.findings] == ["note"]
    assert report.left[0].commands[0].startswith(f"kubectl apply --server-side -f {place.folder / 'jobset.yaml'}")
    body = yaml.safe_load(report.left[-1].commands[-1].split("\n", 1)[1].rsplit("\n", 1)[0])
    assert body["spec"]["inMemoryVolumeSize"] == "256Mi"
    assert "kubernetes_manifest" in report.left[-1].terraform


def test_from_a_bare_cluster_to_ready_drivers_and_again_without_a_change(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    assert done(carry_out(place, data, removal_steps)) == [("delete", "CheckpointConfiguration everstep")]
    assert client.find(CHECKPOINT_CONFIGURATIONS, "everstep") is None
    assert drivers(client) == []
    assert done(carry_out(place, data, removal_steps)) == []
    first = carry_out(place, data, in_cluster_steps)
    assert done(first) == [
        ("update", "Deployment jobset-system/jobset-controller-manager"),
        ("create", "PriorityClass training-high"),
        ("create", "PriorityClass training-low"),
        ("create", "CheckpointConfiguration everstep"),
    ]
    assert len(drivers(client)) == 2
    made = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")
    again = carry_out(place, data, in_cluster_steps)
    assert done(again) == []
    told = {str(finding.severity): str(finding) for finding in again.findings}
    assert "the driver is ready on 2 of 2 nodes" in told["note"]
    # The cluster file has one node more: what is not there is not ready.
    assert "2 nodes of ct6e-standard-4t; expected 3" in told["warning"]
    assert client.get(CHECKPOINT_CONFIGURATIONS, "everstep") == made
    assert client.get(PRIORITY_CLASSES, "training-high")["value"] == 2000000


def test_a_difference_is_an_error_until_it_is_to_be_recreated_and_nobody_uses_it(
    place: Place, data: dict[str, Any]
) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    before = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")
    bigger = copy.deepcopy(data)
    bigger["checkpoint_configurations"]["everstep"]["in_memory_volume_size"] = "300Mi"

    def recreating(site: Site, *, force: bool = False) -> list[Step]:
        return checkpointing_steps(site, recreate=True, force=force)

    with pytest.raises(FindingsError, match=r"'256Mi' instead of '300Mi'.*--recreate"):
        carry_out(place, bigger, checkpointing_steps)
    client.create(JOBSETS, using_jobset("user"), "default")
    eventually(lambda: any(pod["status"].get("phase") == "Running" for pod in client.list_all(PODS, "default")))
    for steps in (recreating, removal_steps):
        with pytest.raises(FindingsError, match=r"used by JobSet default/user.*nobody who uses it"):
            carry_out(place, bigger, steps)
    assert client.get(CHECKPOINT_CONFIGURATIONS, "everstep") == before

    client.patch(JOBSETS, "user", {"spec": {"suspend": True}}, "default")
    eventually(lambda: client.list_all(PODS, "default") == [])
    report = carry_out(place, bigger, recreating)
    assert done(report) == [
        ("recreate", "CheckpointConfiguration everstep"),
        ("create", "CheckpointConfiguration everstep"),
    ]
    after = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["inMemoryVolumeSize"] == "300Mi"
    assert len(drivers(client)) == 2
    client.patch(JOBSETS, "user", {"spec": {"suspend": False}}, "default")
    eventually(lambda: any(pod["status"].get("phase") == "Running" for pod in client.list_all(PODS, "default")))
    forced = carry_out(place, data, lambda site: recreating(site, force=True))
    assert "used by JobSet default/user" in forced.done[0]["note"]
    client.delete(JOBSETS, "user", "default")


def test_a_foreign_configuration_of_the_same_nodes_is_refused_before_anything_is_made(
    place: Place, data: dict[str, Any]
) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    renamed = copy.deepcopy(data)
    renamed["checkpoint_configurations"] = {"another": data["checkpoint_configurations"]["everstep"]}
    with pytest.raises(FindingsError, match=r"overlaps with everstep.*both select node"):
        carry_out(place, renamed, checkpointing_steps)
    assert client.find(CHECKPOINT_CONFIGURATIONS, "another") is None


def test_a_conflict_event_ends_the_wait_at_once(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    body = copy.deepcopy(client.get(CHECKPOINT_CONFIGURATIONS, "everstep"))
    body["metadata"] = {"name": "second"}
    made = client.create(CHECKPOINT_CONFIGURATIONS, body)
    arguments = {"name": "second", "uid": made["metadata"]["uid"]}
    with place.site(data) as site, pytest.raises(FindingsError, match="second overlaps with existing configuration"):
        asyncio.run(within(waits.DriverReady(arguments, site.access()), 20))
    client.delete(CHECKPOINT_CONFIGURATIONS, "second")
    eventually(lambda: client.find(CHECKPOINT_CONFIGURATIONS, "second") is None)


def test_a_wait_that_does_not_end_says_how_things_stand(
    place: Place, data: dict[str, Any], bare_kubernetes: Any
) -> None:
    machine_type = "ct6e-standing"
    data["checkpoint_configurations"]["standing"] = data["checkpoint_configurations"].pop("everstep") | {
        "machine_type": machine_type
    }
    labels = {"node.kubernetes.io/instance-type": machine_type}
    taints = [{"key": "team", "value": "other", "effect": "NoSchedule"}]
    with load_site(place.file(data), kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
        client = site.kubernetes()
        node = {"metadata": {"name": "standing-node", "labels": labels}, "spec": {"taints": taints}}
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        body = configuration.desired("standing", site.spec.checkpoint_configurations["standing"], site.spec)
        uid = client.create(CHECKPOINT_CONFIGURATIONS, body)["metadata"]["uid"]
        wait = waits.DriverReady({"name": "standing", "uid": uid}, site.access())
        with pytest.raises(TimeoutError):
            asyncio.run(within(wait, 4))
        assert wait.standing == f"its controller has not made DaemonSet multitier-driver-{uid} yet"
        driver = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}
        driver["template"]["spec"] = {"containers": [{"name": "csi", "image": "driver"}]}
        metadata = {"name": f"multitier-driver-{uid}"}
        daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": driver}
        client.create(DAEMON_SETS, daemon_set, CHECKPOINTING_NAMESPACE)
        with pytest.raises(TimeoutError):
            asyncio.run(within(wait, 2))
    assert wait.standing.startswith("the driver is ready on 0 of 1 nodes; standing-node: no driver pod")
    assert "no taint team" in wait.standing


def test_a_finalizer_that_stays_is_named(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    held = {"metadata": {"finalizers": ["checkpointing.gke.io/checkpoint-target-protection", "team.dev/mine"]}}
    client.patch(CHECKPOINT_CONFIGURATIONS, "everstep", held)
    uid = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")["metadata"]["uid"]
    client.delete(CHECKPOINT_CONFIGURATIONS, "everstep")
    with place.site(data) as site:
        wait = waits.ConfigurationGone({"name": "everstep", "uid": uid}, site.access())
        eventually(lambda: client.find(DAEMON_SETS, f"multitier-driver-{uid}", CHECKPOINTING_NAMESPACE) is None)
        eventually(lambda: drivers(client) == [])
        with pytest.raises(TimeoutError):
            asyncio.run(within(wait, 4))
        assert "held by" in wait.standing and "team.dev/mine" in wait.standing
        (step,) = checkpointing_steps(site)
        waiting = step.look().waiting
        assert waiting is not None and waiting.kind == "configuration_gone"
    client.patch(CHECKPOINT_CONFIGURATIONS, "everstep", {"metadata": {"finalizers": []}})
    assert done(carry_out(place, data, checkpointing_steps)) == [("create", "CheckpointConfiguration everstep")]


async def within(wait: Any, seconds: float) -> str:
    async with asyncio.timeout(seconds):
        return str(await wait.outcome())


def test_the_controllers_resources_are_raised_once(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    low = {"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}
    set_manager(client, {"resources": low})
    report = carry_out(place, data, jobset_steps)
    assert done(report) == [("update", "Deployment jobset-system/jobset-controller-manager")]
    assert report.done[0]["found"] == "requests cpu 500m, memory 128Mi; limits memory 512Mi"
    deployment = client.get(DEPLOYMENTS, "jobset-controller-manager", "jobset-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":v0.11.1")
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }
    assert look(place, data, jobset_steps).left == []


def test_a_controller_that_is_too_old_for_hot_swaps_is_told(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    set_manager(client, {"image": "registry.k8s.io/jobset/jobset:v0.8.0"})
    (finding,) = look(place, data, jobset_steps).findings
    assert (str(finding.severity), finding.found) == ("warning", "version 0.8")
    assert "--force-conflicts" in finding.remedy
    set_manager(client, {"image": "registry.k8s.io/jobset/jobset:v0.11.1"})


def set_manager(client: KubernetesClient, change: Object) -> None:
    body = {"spec": {"template": {"spec": {"containers": [{"name": "manager", **change}]}}}}
    client.patch(DEPLOYMENTS, "jobset-controller-manager", body, "jobset-system", strategic=True)


def test_a_controller_that_is_installed_elsewhere_gets_no_second_one(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    elsewhere = [
        {**each, "metadata": {"name": "jobset-nowhere"}} if each["kind"] == "Namespace" else each for each in MANIFEST
    ]
    (place.folder / "elsewhere.yaml").write_text(yaml.safe_dump_all(elsewhere))
    client.delete(DEPLOYMENTS, "jobset-controller-manager", "jobset-system")
    try:
        report = look(place, {**data, "jobset": {"manifest": "elsewhere.yaml"}}, jobset_steps)
        (finding,) = report.findings
        assert finding.severity == "error" and "a second one would fight" in finding.expected
        assert report.left == []
    finally:
        carry_out(place, {**data, "jobset": {"manifest": "jobset.yaml"}}, jobset_steps)


def test_a_manifest_is_installed_once_and_goes_on_after_a_half_done_try(place: Place, data: dict[str, Any]) -> None:
    client = client_of(place)
    data["jobset"] = {"manifest": "jobset.yaml"}
    client.delete(DEPLOYMENTS, "jobset-controller-manager", "jobset-system")
    accounts = Resource("", "v1", "serviceaccounts")
    report = carry_out(place, data, jobset_steps)
    assert done(report)[0] == ("install", "JobSet controller")
    assert client.find(accounts, "jobset-controller-manager", "jobset-system") is not None
    client.delete(accounts, "jobset-controller-manager", "jobset-system")
    assert done(carry_out(place, data, jobset_steps)) == [("install", "JobSet controller")]
    assert client.find(accounts, "jobset-controller-manager", "jobset-system") is not None
    assert done(carry_out(place, data, jobset_steps)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [("a: [", "expected"), ("kind: List", "no objects"), ("", "CustomResourceDefinition"), (None, "No such file")],
)
def test_a_manifest_that_is_unfit_is_refused_before_anything_is_made(
    place: Place, data: dict[str, Any], text: str | None, told: str
) -> None:
    data["jobset"] = {"manifest": "unfit.yaml"}
    unfit = place.folder / "unfit.yaml"
    unfit.unlink(missing_ok=True)
    if text is not None:
        unfit.write_text(text)
    report = look(place, data, jobset_steps)
    assert report.left == []
    assert told in str(report.findings[0]) and "curl -Lo" in report.findings[0].remedy


def test_killed_anywhere_and_run_again_it_converges(place: Place, data: dict[str, Any], tmp_path: Path) -> None:
    """Recreation and readiness in a process that is killed after each request, until a run goes through."""
    client = client_of(place)
    data["checkpoint_configurations"]["everstep"]["in_memory_volume_size"] = "280Mi"
    data["priorities"] = {"class-one": 11, "class-two": 12}
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from everstep.clients.kubernetes import KubernetesClient
            from everstep.provision.changes import Mode
            from everstep.provision.everything import provision
            from everstep.provision.in_cluster import configuration, waits
            from everstep.provision.in_cluster.steps import in_cluster_steps
            from everstep.provision.site import load_site

            waits.POLL_SECONDS = 0.1
            left, send = int(sys.argv[3]), KubernetesClient._send_once

            def counted(self, method, *rest):
                global left
                answer = send(self, method, *rest)
                left -= method != "GET"
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return answer

            KubernetesClient._send_once = counted
            with load_site(sys.argv[1], kubeconfig=sys.argv[2]) as site:
                provision(site, in_cluster_steps(site, recreate=True), Mode.APPLY, print)
            """
        )
    )
    command = [sys.executable, str(program), str(place.file(data)), str(place.kubeconfig)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    codes = []
    for _ in range(8):
        run = subprocess.run([*command, "1"], env=environment, capture_output=True, text=True, timeout=60, check=False)
        codes.append(run.returncode)
        if run.returncode != -signal.SIGKILL:
            break
    # Two classes, one deletion, one creation: each was the last deed of a process.
    assert codes == [-signal.SIGKILL] * 4 + [0], run.stderr
    assert run.stdout.splitlines()[-1] == "checkpoint configurations: nothing to change"
    assert client.get(CHECKPOINT_CONFIGURATIONS, "everstep")["spec"]["inMemoryVolumeSize"] == "280Mi"
    assert len(drivers(client)) == 2


def test_a_refusal_of_the_cluster_is_no_absence(place: Place, data: dict[str, Any], bare_kubernetes: Any) -> None:
    with load_site(place.file(data), kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
        bare_kubernetes.fault(match="/version", status=403, times=1)
        (step,) = checkpointing_steps(site)
        with pytest.raises(RemoteError):
            step.look()
