"""CheckpointConfigurations as a cluster file asks for them: built, sized, compared by meaning. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.provision.in_cluster import configuration, drivers
from everstep.provision.in_cluster.resources_raised import raised
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError
from everstep.spec.parsing import parse

Edit = dict[str, Any]


def cluster_of(data: dict[str, Any], **edits: Any) -> ClusterSpec:
    data["checkpoint_configurations"]["everstep"].update(edits)
    return parse(ClusterSpec, data, "cluster")


def built(data: dict[str, Any], **edits: Any) -> dict[str, Any]:
    cluster = cluster_of(data, **edits)
    return configuration.desired("everstep", cluster.checkpoint_configurations["everstep"], cluster)


def test_it_is_built_for_a_machine_type_with_its_accelerators_taint(cluster_data: dict[str, Any]) -> None:
    spec = built(cluster_data, in_memory_volume_size="200 GiB")["spec"]
    assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "ct6e-standard-4t"}
    assert spec["tolerations"] == [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["inMemoryVolumeSize"] == "200Gi"
    assert "write:enable-streaming-writes:true" in spec["gcsFuseMountOptions"]
    assert "csiEphemeralLimit" not in spec


def test_machines_without_a_pool_get_the_taint_of_their_family(cluster_data: dict[str, Any]) -> None:
    for machine_type, keys in (("a3-highgpu-8g", ["nvidia.com/gpu"]), ("ct5e-hightpu-4t", ["google.com/tpu"])):
        body = built(cluster_data, machine_type=machine_type)
        assert [each["key"] for each in body["spec"]["tolerations"]] == keys
    assert built(cluster_data, machine_type="e2-standard-4")["spec"]["tolerations"] == []


def test_the_documents_spelling_of_v5e_machines_is_taken(cluster_data: dict[str, Any]) -> None:
    cluster_data["pools"]["v5e"] = {
        "accelerator": "tpu-v5-lite-podslice",
        "topology": "2x2",
        "machine_type": "ct5e-hightpu-4t",
        "chips_per_node": 4,
        "nodes_per_slice": 1,
        "slices": 1,
    }
    cluster = cluster_of(cluster_data, machine_type="ct5lp-hightpu-4t")
    assert cluster.pools["v5e"].machine_type == "ct5lp-hightpu-4t"
    assert cluster.configuration_of(cluster.pools["v5e"].machine_type) is not None


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ({"in_memory_volume_size": 200000}, "a number and a unit, such as 200Gi"),
        ({"in_memory_volume_size": "200B"}, "a number and a unit"),
        ({"in_memory_volume_size": "lots"}, "a size such as"),
        ({"csi_ephemeral_limit": "5"}, "a number and a unit"),
        ({"bucket": "gs://acme"}, "no gs://"),
    ],
)
def test_what_the_driver_would_misread_is_refused(cluster_data: dict[str, Any], edits: Edit, told: str) -> None:
    with pytest.raises(FindingsError, match=told):
        cluster_of(cluster_data, **edits)


@pytest.mark.parametrize(
    ("machine_type", "size", "checkpoint", "least"),
    [
        ("ct6e-standard-4t", "220Gi", "100Gi", None),
        ("ct6e-standard-4t", "219Gi", "100Gi", "220Gi"),
        ("ct6e-standard-4t", "200Gi", "96GiB", "212Gi"),
        ("a3-highgpu-8g", "660Gi", "100Gi", None),
        ("a3-highgpu-8g", "220Gi", "100Gi", "660Gi"),
        ("ct6e-standard-4t", "256Mi", "200Mi", "440Mi"),
    ],
)
def test_the_ram_disk_holds_a_multiple_of_the_checkpoint(
    cluster_data: dict[str, Any], machine_type: str, size: str, checkpoint: str, least: str | None
) -> None:
    cluster = cluster_of(
        cluster_data, machine_type=machine_type, in_memory_volume_size=size, checkpoint_size=checkpoint
    )
    remedies = [finding.remedy for finding in configuration.size_findings(cluster)]
    assert remedies == ([] if least is None else [f"set in_memory_volume_size to {least} or more"])


@pytest.mark.parametrize(
    ("memory", "severity"), [("100Gi", "error"), ("90Gi", "error"), ("110Gi", "warning"), ("200Gi", None), (None, None)]
)
def test_nodes_need_the_memory(memory: str | None, severity: str | None) -> None:
    small = {"metadata": {"name": "small"}, "status": {"allocatable": {"memory": memory} if memory else {}}}
    nodes = [{"metadata": {"name": "big"}, "status": {"allocatable": {"memory": "2000Gi"}}}, small]
    findings = configuration.memory_findings("x", 100 * 2**30, nodes if memory else [small])
    assert [str(finding.severity) for finding in findings] == ([severity] if severity else [])
    assert all("node small" in finding.found for finding in findings)


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ({}, None),
        ({"inMemoryVolumeSize": "262144Ki"}, None),
        ({"inMemoryVolumeSize": "268435456"}, None),
        ({"inMemoryVolumeSize": "268.435456M"}, None),
        ({"enableExternalJaxProcessIds": False}, None),
        ({"csiEphemeralLimit": "5Gi"}, None),
        ({"gcsFuseMountOptions": ["implicit-dirs"]}, None),
        (
            {"tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "own"}]},
            None,
        ),
        ({"inMemoryVolumeSize": "512Mi"}, "inMemoryVolumeSize '512Mi' instead of '256Mi'"),
        ({"inMemoryVolumeSize": None}, "inMemoryVolumeSize None"),
        ({"cloudStorageBucketName": "other"}, "bucket 'other' instead of 'everstep-tests'"),
        ({"nodeSelector": {}}, "nodeSelector {} instead of"),
        ({"tolerations": []}, "tolerations [] instead of [google.com/tpu Exists NoSchedule]"),
        ({"tolerations": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]}, "Equal present"),
    ],
)
def test_only_what_means_something_else_differs(cluster_data: dict[str, Any], edits: Edit, told: str | None) -> None:
    wanted = built(cluster_data)["spec"]
    explicit = cluster_of(cluster_data).checkpoint_configurations["everstep"]
    found = configuration.differences({**wanted, **edits}, wanted, explicit=explicit)
    assert found == [] if told is None else [told in each for each in found] == [True]


def test_what_the_file_names_itself_is_compared_exactly(cluster_data: dict[str, Any]) -> None:
    named = {"mount_options": ["implicit-dirs", "read_ahead_kb=1024"], "tolerations": [{"key": "google.com/tpu"}]}
    wanted = built(cluster_data, **named)["spec"]
    explicit = cluster_of(cluster_data).checkpoint_configurations["everstep"]
    turned = {**wanted, "gcsFuseMountOptions": ["read_ahead_kb=1024", "implicit-dirs"]}
    assert configuration.differences(turned, wanted, explicit=explicit) == []
    more = {**turned, "gcsFuseMountOptions": [], "tolerations": [*wanted["tolerations"], {"key": "own"}]}
    assert len(configuration.differences(more, wanted, explicit=explicit)) == 2


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ({}, {"type": "a"}, True),
        ({"type": "a"}, {"type": "a", "pool": "p"}, True),
        ({"type": "a"}, {"type": "b"}, False),
        ({"pool": "p"}, {"type": "a"}, True),
        ({"pool": "q"}, {"type": "a"}, False),
    ],
)
def test_two_configurations_overlap_on_nodes_or_by_their_selectors(one: Edit, other: Edit, overlaps: bool) -> None:
    nodes = [{"metadata": {"name": "n", "labels": {"type": "a", "pool": "p"}}}]
    assert (configuration.overlap(one, other, nodes) is not None) == overlaps


def deployment(requests: Edit, limits: Edit) -> dict[str, Any]:
    container = {"name": "manager", "image": "registry/jobset/jobset:v0.11.1"}
    if requests or limits:
        container["resources"] = {"requests": requests, "limits": limits}  # type: ignore[assignment]
    proxy = {"name": "proxy", "image": "proxy"}
    metadata = {"name": "m", "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [proxy, container]}}}}


@pytest.mark.parametrize(
    ("requests", "limits", "new_requests", "new_limits"),
    [
        ({}, {}, {"cpu": "1", "memory": "1Gi"}, {}),
        (
            {"cpu": "500m", "memory": "128Mi"},
            {"cpu": "2", "memory": "512Mi"},
            {"cpu": "1", "memory": "1Gi"},
            {"memory": "2Gi"},
        ),
        ({"cpu": "500m"}, {"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}),
        ({"cpu": "1000m", "memory": "1024Mi"}, {"memory": "2147483648"}, None, None),
        ({"cpu": 4, "memory": "8Gi"}, {"cpu": 4, "memory": "8Gi"}, None, None),
        ({"cpu": "1", "memory": "3Gi"}, {"memory": "1Gi"}, {}, {"memory": "3Gi"}),
    ],
)
def test_the_managers_resources_only_ever_go_up(
    requests: Edit, limits: Edit, new_requests: Edit | None, new_limits: Edit | None
) -> None:
    patch = raised(deployment(requests, limits), cpu="1", memory="1Gi", memory_limit="2Gi")
    if new_requests is None:
        assert patch is None
        return
    assert patch is not None
    (container,) = patch.body["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["resources"].get("requests", {})) == ("manager", new_requests)
    assert container["resources"].get("limits", {}) == new_limits
    assert patch.body["metadata"] == {"resourceVersion": "7"}


DENIED = (
    "MountVolume.SetUp failed for volume gcs: PermissionDenied: googleapi: Error 403: Caller does not have "
    "storage.objects.list access. Permission 'storage.objects.list' denied on resource (or it may not exist)."
)
NO_TOKEN = "Unable to generate access token: iam.serviceAccounts.getAccessToken denied"


@pytest.mark.parametrize(
    ("pod", "event", "told"),
    [
        ({}, None, None),
        ({"ready": False}, DENIED, "Init:0/1 (PodInitializing): FailedMount: MountVolume"),
        ({"ready": False}, DENIED, "roles/storage.objectUser on it lacks"),
        ({"ready": False}, NO_TOKEN, "Workload Identity is off"),
        ({"ready": False}, None, "is Init:0/1"),
        (None, None, "no driver pod"),
        ({"deleted": True}, None, "is ending"),
    ],
)
def test_why_a_node_lacks_its_driver(pod: Edit | None, event: str | None, told: str | None) -> None:
    owner = {"metadata": {"uid": "u"}, "spec": {"tolerations": [{"key": "google.com/tpu", "operator": "Exists"}]}}
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    ready = {"type": "Ready", "status": "True"}
    node = {"metadata": {"name": "n"}, "spec": {"taints": [taint]}, "status": {"conditions": [ready]}}
    pods = []
    if pod is not None:
        status: Edit = {"phase": "Running", "conditions": [ready]}
        if pod.get("ready") is False:
            waiting = {"state": {"waiting": {"reason": "PodInitializing"}}, "ready": False}
            status = {"phase": "Pending", "conditions": [], "initContainerStatuses": [waiting]}
        metadata = {"name": "multitier-driver-u-abc"} | ({"deletionTimestamp": "now"} if pod.get("deleted") else {})
        pods = [{"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}]
    about = {"involvedObject": {"name": "multitier-driver-u-abc"}, "type": "Warning", "metadata": {}}
    events = [about | {"reason": "FailedMount", "message": event, "lastTimestamp": "2026"}] if event else []
    standing = drivers.standing(owner, [node], pods, events)
    assert standing.is_ready is (told is None)
    assert (told or "ready on 1 of 1 nodes") in str(standing)


def test_no_secret_of_an_event_goes_into_a_wait() -> None:
    owner = {"metadata": {"uid": "u"}, "spec": {}}
    node = {"metadata": {"name": "n"}, "status": {}}
    pod = {"metadata": {"name": "multitier-driver-u-abc"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
    about = {"involvedObject": {"name": "multitier-driver-u-abc"}, "type": "Warning", "metadata": {}}
    message = 'Failed to pull: unauthorized: {"username":"me","password":"correcthorsebattery"}'
    told = str(drivers.standing(owner, [node], [pod], [about | {"reason": "Failed", "message": message}]))
    assert "Failed: Failed to pull: unauthorized" in told and "correcthorsebattery" not in told


def test_a_taint_that_the_configuration_does_not_tolerate_is_named() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    node = {"metadata": {"name": "n"}, "spec": {"taints": [taint]}, "status": {}}
    assert "tolerates no taint team" in str(drivers.standing({"metadata": {"uid": "u"}, "spec": {}}, [node], []))


def test_a_thousand_nodes_are_told_by_reason() -> None:
    nodes = [{"metadata": {"name": f"n{number:04d}"}, "status": {}} for number in range(1000)]
    told = str(drivers.standing({"metadata": {"uid": "u"}, "spec": {}}, nodes, []))
    assert told.startswith("the driver is ready on 0 of 1000 nodes; n0000, n0001, n0002 and 997 more: ")
    assert len(told) < 200
