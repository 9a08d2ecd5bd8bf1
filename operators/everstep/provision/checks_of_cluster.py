"""Preflight's looks at the cluster: add-ons, classes, nodes, and who would have to make room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBSET_DEFINITION,
    JOBSET_NAMESPACE,
    JOBSET_RELEASE,
    NODES,
    PODS,
    PRIORITY_CLASSES,
)
from everstep.launch import labels
from everstep.provision.in_cluster import drivers
from everstep.provision.in_cluster import jobset as controller
from everstep.provision.in_cluster.configuration import memory_findings
from everstep.provision.priority_classes import compare, default_findings
from everstep.spec.findings import Finding, error, note, warning
from everstep.spec.quantities import format_bytes, parse_bytes, quantity_value
from everstep.spec.training import TrainingSpec

PROVISION = "everstep provision CLUSTER_FILE --mode apply, or the DAG provision_checkpointing"
# Beyond this a victim's grace period is what everybody's recovery waits for.
USUAL_GRACE_SECONDS = 30


def reach(client: KubernetesClient) -> Iterator[Finding]:
    """Is there an answer at all? Raises what the client raises."""
    yield note("the cluster", f"answers as Kubernetes {client.version() or 'of unknown version'}")


def jobset(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the JobSet controller there, and new enough for hot swaps?"""
    definition = client.find(CUSTOM_RESOURCE_DEFINITIONS, JOBSET_DEFINITION)
    if definition is None:
        yield error(
            "JobSet",
            "not installed",
            "JobSet 0.11 or newer",
            f"kubectl apply --server-side -f {JOBSET_RELEASE}, or name a manifest in the cluster file: {PROVISION}",
        )
        return
    deployment = controller.manager(client.list_all(DEPLOYMENTS, JOBSET_NAMESPACE))
    if deployment is None:
        return
    version = controller.version_of(deployment)
    if version is not None and version < controller.HOT_SWAP_VERSION and spec.slices.spare == "preempt":
        yield error(
            "JobSet",
            f"version {version[0]}.{version[1]}",
            "0.11 or newer for slices.spare: preempt, since older ones keep a slice from being preempted",
            f"kubectl apply --server-side --force-conflicts -f {JOBSET_RELEASE}",
        )
    if not controller.is_available(deployment):
        name = deployment["metadata"]["name"]
        yield warning(
            "JobSet",
            f"its controller {name} is not available",
            "one that is, or no pod is made",
            f"kubectl describe deployment {name} -n {JOBSET_NAMESPACE}",
        )


def priority(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the run's class there with the value that the cluster file gives it?"""
    if spec.priority is None:
        return
    difference = compare(
        spec.priority, spec.cluster_spec.priorities[spec.priority], client.find(PRIORITY_CLASSES, spec.priority)
    )
    if difference is not None:
        yield difference


def default_class(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Does the cluster give a class to every pod that names none? Then nothing of them gives way as expected."""
    if spec.priority is not None:
        yield from default_findings(client.list_all(PRIORITY_CLASSES))


def checkpoint_configuration(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Do the run's nodes have the RAM disk and the bucket that the cluster file says, with a driver that is ready?"""
    found = spec.cluster_spec.configuration_of(spec.pool.machine_type)
    assert found is not None, "a spec without configuration is refused earlier"
    name, wanted = found
    where = f"CheckpointConfiguration {name}"
    configuration = client.find(CHECKPOINT_CONFIGURATIONS, name)
    if configuration is None:
        yield error(where, "not there", f"one with bucket {wanted.bucket!r}", PROVISION)
        return
    if configuration["metadata"].get("deletionTimestamp"):
        yield error(where, "being deleted", "one that stays", f"wait for its end, then {PROVISION}")
        return
    have = configuration.get("spec") or {}
    recreate = "correct the cluster file, or (that wipes the RAM disks) everstep provision CLUSTER_FILE --mode apply "
    recreate += "--recreate"
    if have.get("cloudStorageBucketName") != wanted.bucket:
        yield error(where, f"bucket {have.get('cloudStorageBucketName')!r}", f"bucket {wanted.bucket!r}", recreate)
    if quantity_value(have.get("inMemoryVolumeSize")) != wanted.ram_bytes:
        yield error(
            where,
            f"inMemoryVolumeSize {have.get('inMemoryVolumeSize')!r}",
            f"{wanted.in_memory_volume_size!r}, as the cluster file says",
            recreate,
        )
    selector = have.get("nodeSelector") or {}
    labels_of_pool = spec.pool.node_labels()
    missed = {key: value for key, value in selector.items() if labels_of_pool.get(key, value) != value}
    if missed:
        yield error(where, f"nodeSelector {missed}", f"one that fits the pool's {labels_of_pool}", recreate)
    selected = [
        node for node in _nodes_of(client, spec) if selector.items() <= (node["metadata"].get("labels") or {}).items()
    ]
    yield from memory_findings(where, wanted.ram_bytes, selected)
    yield from _room_for_training(spec, where, wanted.ram_bytes, selected)
    yield from _driver(client, configuration, where, selected)


def _nodes_of(client: KubernetesClient, spec: TrainingSpec) -> list[dict[str, Any]]:
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec.pool.node_labels().items()))
    return client.list_all(NODES, labels=selector)


def _room_for_training(
    spec: TrainingSpec, where: str, ram: int, nodes: Iterable[Mapping[str, Any]]
) -> Iterator[Finding]:
    """The RAM disk counts as memory of the driver, beside what the trainer asks for."""
    asked = spec.trainer.resources.memory
    known = [quantity_value(((each.get("status") or {}).get("allocatable") or {}).get("memory")) for each in nodes]
    least = min((each for each in known if each is not None), default=None)
    if asked is None or least is None or ram >= least:
        return
    if parse_bytes(asked) + ram > least:
        yield error(
            where,
            f"a RAM disk of {format_bytes(ram)} and trainer.resources.memory {asked} on nodes of "
            f"{format_bytes(float(least))}",
            "room for both",
            f"set trainer.resources.memory to at most {format_bytes(float(least) - ram)}",
        )


def nodes(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Are there as many whole slices as the run wants?"""
    pools: dict[str, int] = defaultdict(int)
    for node in _nodes_of(client, spec):
        if _is_usable(node):
            pools[node["metadata"].get("labels", {}).get(labels.NODE_POOL, "")] += 1
    whole = sorted(pool for pool, count in pools.items() if count >= spec.pool.nodes_per_slice)
    where = f"nodes of pool {spec.slices.pool!r}"
    if len(whole) < spec.slices.count:
        yield error(
            where,
            f"{len(whole)} whole slices ({sum(pools.values())} usable nodes in {len(pools)} node pools)",
            f"{spec.slices.count} slices of {spec.pool.nodes_per_slice} nodes",
            "wait for the repair, enlarge the node pools, or correct the cluster file",
        )
    else:
        yield note(where, f"{len(whole)} whole slices, {spec.slices.count} wanted")


def victims(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Would a hot swap find somebody who gives up a slice, and how long would it wait for that?"""
    if spec.slices.spare != "preempt" or spec.priority is None:
        return
    own = spec.cluster_spec.priorities[spec.priority]
    slow: dict[str, int] = {}
    for pod in client.list_all(PODS, fields="status.phase=Running"):
        body = pod.get("spec") or {}
        if int(body.get("priority") or 0) >= own or not _uses(body, spec.pool.resource):
            continue
        grace = int(body.get("terminationGracePeriodSeconds") or 30)
        owner = (pod["metadata"].get("labels") or {}).get(labels.JOBSET_NAME) or pod["metadata"]["name"]
        name = f"{pod['metadata']['namespace']}/{owner}"
        slow[name] = max(grace, slow.get(name, 0))
    if not slow:
        yield note("victims", f"nobody below priority {own} runs on {spec.pool.resource} now", "a lower priority")
    for name, grace in sorted(slow.items()):
        if grace > USUAL_GRACE_SECONDS:
            yield warning(
                f"victim {name}",
                f"terminationGracePeriodSeconds {grace}",
                f"{USUAL_GRACE_SECONDS} or less",
                f"a hot swap that takes its slice waits up to {grace} s for it",
            )


def _driver(
    client: KubernetesClient, configuration: Mapping[str, Any], where: str, nodes: list[dict[str, Any]]
) -> Iterator[Finding]:
    name = drivers.daemon_set_name(configuration)
    driver = client.find(DAEMON_SETS, name, CHECKPOINTING_NAMESPACE)
    if driver is None:
        yield error(
            where,
            f"no DaemonSet {CHECKPOINTING_NAMESPACE}/{name}",
            "a driver on each node",
            f"kubectl describe checkpointconfiguration {configuration['metadata']['name']} (look for Conflict)",
        )
        return
    status = driver.get("status") or {}
    desired, ready = int(status.get("desiredNumberScheduled") or 0), int(status.get("numberReady") or 0)
    if ready < desired or desired == 0:
        tell = error if ready == 0 else warning
        yield tell(
            where,
            f"its driver is ready on {ready} of {desired} nodes",
            "all of them, or pods there wait for their volume",
            f"kubectl describe pods -n {CHECKPOINTING_NAMESPACE} -l k8s-app=high-scale-checkpointing",
        )
        return
    standing = drivers.standing(configuration, nodes, client.list_all(PODS, CHECKPOINTING_NAMESPACE))
    if standing.lacking:
        yield warning(
            where,
            f"on nodes of the pool {standing}",
            "a driver on every node of the pool",
            f"kubectl get pods -n {CHECKPOINTING_NAMESPACE} -o wide",
        )


def _is_usable(node: Mapping[str, Any]) -> bool:
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in (node.get("status") or {}).get("conditions") or []
    )
    taints = {taint.get("key") for taint in (node.get("spec") or {}).get("taints") or []}
    leaving = "cloud.google.com/impending-node-termination" in taints
    return ready and not leaving and not (node.get("spec") or {}).get("unschedulable")


def _uses(pod_spec: Mapping[str, Any], resource: str) -> bool:
    return any(
        resource in ((container.get("resources") or {}).get("limits") or {})
        for container in pod_spec.get("containers") or []
    )
