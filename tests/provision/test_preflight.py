"""Preflight against a real API and bucket: each thing that can be amiss is found, all at once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from everstep.checkpoints.layout import RunFolder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBSETS,
    NAMESPACES,
    NODES,
    PODS,
)
from everstep.launch import manifest
from everstep.launch.launcher import Launcher
from everstep.provision import preflight, priority_classes
from everstep.provision.preflight import Subject
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import Finding, Severity
from everstep.spec.training import TrainingSpec

pytestmark = pytest.mark.sandbox
Place = Callable[[], Subject]


@pytest.fixture
def subject(
    bare_kubernetes: Any, cloud_storage: Any, new_bucket: str, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> Subject:
    """A run on a cluster of its own making, in which nothing is amiss."""
    unique = uuid.uuid4().hex[:6]
    machine_type = f"ct6e-{unique}"
    run_data["name"] = f"lm-{unique}"
    cluster_data["pools"]["v6e-2x4"]["machine_type"] = machine_type
    cluster_data["checkpoint_configurations"] = {
        f"config-{unique}": {"bucket": new_bucket, "machine_type": machine_type, "in_memory_volume_size": "256Mi"}
    }
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    client = ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open()
    for name, value in spec.cluster_spec.priorities.items():
        priority_classes.create(client, name, value)
    make_controller_available(client)
    for slice_number in range(2):
        for host in range(2):
            make_node(client, spec, f"node-{unique}-{slice_number}-{host}", f"pool-{unique}-{slice_number}")
    configure(client, f"config-{unique}", new_bucket, machine_type)
    return Subject(spec, client, StorageAccess(endpoint=cloud_storage.address).open(new_bucket), "me")


def make_controller_available(client: KubernetesClient) -> None:
    """Nobody runs Deployments in the bare API."""
    deployment = client.get(DEPLOYMENTS, "jobset-controller-manager", "jobset-system")
    conditions = [{"type": "Available", "status": "True"}]
    generation = deployment["metadata"].get("generation", 1)
    status = {"observedGeneration": generation, "updatedReplicas": 1, "replicas": 1, "conditions": conditions}
    patch_status(client, DEPLOYMENTS.path("jobset-system", "jobset-controller-manager", "status"), status)


def make_node(client: KubernetesClient, spec: TrainingSpec, name: str, pool: str) -> None:
    labels = spec.pool.node_labels() | {"cloud.google.com/gke-nodepool": pool}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    patch_status(client, NODES.path(None, name, "status"), status)


def patch_status(client: KubernetesClient, path: str, status: dict[str, Any]) -> None:
    client._request("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")


def configure(client: KubernetesClient, name: str, bucket: str, machine_type: str) -> None:
    made = client.create(
        CHECKPOINT_CONFIGURATIONS,
        {
            "apiVersion": "checkpointing.gke.io/v1",
            "kind": "CheckpointConfiguration",
            "metadata": {"name": name},
            "spec": {
                "cloudStorageBucketName": bucket,
                "nodeSelector": {"node.kubernetes.io/instance-type": machine_type},
                "inMemoryVolumeSize": "256Mi",
            },
        },
    )
    if client.find(NAMESPACES, CHECKPOINTING_NAMESPACE) is None:
        client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CHECKPOINTING_NAMESPACE}}
        )
    driver = f"multitier-driver-{made['metadata']['uid']}"
    pod = {"containers": [{"name": "csi", "image": "driver"}]}
    client.create(
        DAEMON_SETS,
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": driver, "namespace": CHECKPOINTING_NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": driver}},
                "template": {"metadata": {"labels": {"app": driver}}, "spec": pod},
            },
        },
        CHECKPOINTING_NAMESPACE,
    )
    patch_status(
        client,
        DAEMON_SETS.path(CHECKPOINTING_NAMESPACE, driver, "status"),
        {"desiredNumberScheduled": 4, "numberReady": 4, "currentNumberScheduled": 4, "numberMisscheduled": 0},
    )
    for node in client.list_all(NODES, labels=f"node.kubernetes.io/instance-type={machine_type}"):
        name = f"{driver}-{node['metadata']['name'][-3:]}"
        spec = {**pod, "nodeName": node["metadata"]["name"]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        client.create(PODS, body, CHECKPOINTING_NAMESPACE)
        conditions = [{"type": "Ready", "status": "True"}]
        path = PODS.path(CHECKPOINTING_NAMESPACE, name, "status")
        patch_status(client, path, {"phase": "Running", "conditions": conditions})


def put(subject: Subject, name: str, body: str = "x") -> None:
    subject.bucket._bucket.blob(f"{subject.spec.name}/{name}").upload_from_string(body)


def backup(subject: Subject, name: str, step: int, nodes: int = 4) -> None:
    digest = "D" + "ab" * 32
    for node in range(nodes):
        put(subject, f"{name}/{subject.spec.name}-s{step}-n{node}-w0.meta", digest)
    put(subject, f"{name}/{digest}.data/manifest.ocdbt")


def amiss(subject: Subject) -> list[Finding]:
    return [finding for finding in preflight.check(subject) if finding.severity is not Severity.NOTE]


def test_a_run_in_order_has_notes_only(subject: Subject) -> None:
    assert amiss(subject) == []
    told = " ".join(str(finding) for finding in preflight.check(subject))
    assert "2 whole slices, 2 wanted" in told
    assert "nothing to restore: the run starts from step 0" in told


def test_what_would_be_restored_and_lost_is_told(subject: Subject) -> None:
    backup(subject, "2026-11-01_10-00", 40)
    put(subject, "everstep/status.json", json.dumps({"step": 55}))
    told = " ".join(str(finding) for finding in preflight.check(subject))
    assert "step 40 of 100 would be restored from backup 2026-11-01_10-00" in told
    assert "step 55, so 15 steps are lost" in told
    assert amiss(subject) == []


def test_many_things_amiss_are_all_found(subject: Subject) -> None:
    spec, client = subject.spec, subject.cluster
    unique = spec.name.removeprefix("lm-")
    client.patch(NODES, f"node-{unique}-1-1", {"spec": {"unschedulable": True}})
    client.patch(
        CHECKPOINT_CONFIGURATIONS,
        f"config-{unique}",
        {"spec": {"inMemoryVolumeSize": "128Mi", "cloudStorageBucketName": "another"}},
    )
    put(subject, "restore.version", "2026-11-01_10-00")
    found = " ".join(str(finding) for finding in amiss(subject))
    assert "1 whole slices (3 usable nodes in 2 node pools); expected 2 slices of 2 nodes" in found
    assert "inMemoryVolumeSize '128Mi'" in found
    assert "bucket 'another'" in found
    assert "forces a restore of '2026-11-01_10-00', which is not there" in found


def test_a_driver_that_is_nowhere_ready_is_an_error_and_one_that_lags_a_warning(subject: Subject) -> None:
    uid = subject.cluster.get(CHECKPOINT_CONFIGURATIONS, f"config-{subject.spec.name[3:]}")["metadata"]["uid"]
    path = DAEMON_SETS.path(CHECKPOINTING_NAMESPACE, f"multitier-driver-{uid}", "status")
    for ready, severity in ((3, Severity.WARNING), (0, Severity.ERROR)):
        patch_status(subject.cluster, path, {"numberReady": ready})
        (finding,) = amiss(subject)
        assert (finding.severity, finding.found) == (severity, f"its driver is ready on {ready} of 4 nodes")


def test_something_there_but_nothing_restorable_stops_unless_a_fresh_start_is_allowed(subject: Subject) -> None:
    backup(subject, "2026-11-01_10-00", 40, nodes=1)
    severities = {each.severity for each in amiss(subject)}
    assert severities == {Severity.ERROR}
    spec = subject.spec.model_copy(update={"allow_fresh_start": True}).on(subject.spec.cluster_spec)
    allowed = amiss(Subject(spec, subject.cluster, subject.bucket, "me"))
    assert {each.severity for each in allowed} == {Severity.WARNING}


def test_a_bucket_that_is_not_there_is_found_before_anything_else_of_it_is_asked(
    subject: Subject, cloud_storage: Any
) -> None:
    absent = StorageAccess(endpoint=cloud_storage.address).open("bucket-that-is-not-there")
    (finding,) = amiss(Subject(subject.spec, subject.cluster, absent, "me"))
    assert finding.found == "no such bucket"
    assert "--enable-hierarchical-namespace" in finding.remedy


def test_a_flat_bucket_is_refused(subject: Subject, cloud_storage: Any) -> None:
    name = f"flat-{uuid.uuid4().hex[:6]}"
    cloud_storage.post("/storage/v1/b?project=everstep", {"name": name})
    flat = StorageAccess(endpoint=cloud_storage.address).open(name)
    (finding,) = amiss(Subject(subject.spec, subject.cluster, flat, "me"))
    assert finding.found == "no hierarchical namespace"


def test_a_run_that_somebody_else_holds_is_found(subject: Subject) -> None:
    Launcher(subject.spec, subject.cluster, subject.bucket, "other").launch()
    found = " ".join(str(finding) for finding in amiss(subject))
    assert "live (starting), launched by other" in found
    assert "held by other (launch for JobSet" in found


def test_a_foreign_jobset_of_the_same_name_is_found(subject: Subject) -> None:
    body = manifest.build(subject.spec, launch=1, holder="x")
    body["metadata"]["labels"] = {}
    subject.cluster.create(JOBSETS, body, "default")
    (finding,) = amiss(subject)
    assert finding.found == "an object that Everstep did not launch"


def test_a_cluster_that_refuses_gives_one_finding_and_the_bucket_is_still_looked_at(
    subject: Subject, bare_kubernetes: Any
) -> None:
    backup(subject, "2026-11-01_10-00", 40, nodes=1)
    bare_kubernetes.fault(match="/version", status=403, times=1)
    found = amiss(subject)
    assert [each.object for each in found if each.severity is Severity.ERROR] == [
        "the cluster",
        RunFolder(subject.bucket.name, subject.spec.name).url(),
    ]


def test_a_jobset_that_the_cluster_would_not_take_is_found_with_its_own_sentence(
    subject: Subject, bare_kubernetes: Any
) -> None:
    bare_kubernetes.fault(match="POST .*/jobsets.*dryRun=All", status=422, times=1)
    (finding,) = amiss(subject)
    assert (finding.severity, finding.object) == (Severity.ERROR, f"JobSet default/{subject.spec.name}")
    assert finding.found.startswith("would not be taken: POST ")
    assert subject.cluster.find(JOBSETS, subject.spec.name, "default") is None


def test_a_missing_class_is_an_error_that_names_the_command(
    subject: Subject, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    cluster_data["priorities"] = {"class-to-be": 3000, "lower": 1}
    cluster_data["checkpoint_configurations"] = {
        name: each.model_dump() for name, each in subject.spec.cluster_spec.checkpoint_configurations.items()
    }
    run_data["priority"] = "class-to-be"
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    moved = Subject(spec, subject.cluster, subject.bucket, "me")
    for findings in (amiss(moved), [each for each in preflight.essentials(moved) if each.severity is Severity.ERROR]):
        assert {finding.object for finding in findings} >= {"PriorityClass class-to-be"}
        assert any("everstep provision" in finding.remedy for finding in findings)
