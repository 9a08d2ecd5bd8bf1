"""Preflight's looks at the cluster: add-ons, classes, nodes, and who would have to make room."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
)
from everstep.launch import labels
from everstep.provision.priority_classes import compare
from everstep.spec.findings import Finding, error, note, warning
from everstep.spec.quantities import parse_bytes
from everstep.spec.training import TrainingSpec

# Scoping of exclusive placement by priority, without which no slice can be preempted (jobset#687, #1077).
HOT_SWAP_JOBSET = (0, 11)
# Beyond this a victim's grace period is what everybody's recovery waits for.
USUAL_GRACE_SECONDS = 30


def reach(client: KubernetesClient) -> Iterator[Finding]:
    """Is there an answer at all? Raises what the client raises."""
    yield note("the cluster", f"answers as Kubernetes {client.version() or 'of unknown version'}")


def jobset(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the JobSet controller there, and new enough for hot swaps?"""
    definition = client.find(CUSTOM_RESOURCE_DEFINITIONS, "jobsets.jobset.x-k8s.io")
    if definition is None:
        yield error("JobSet", "not installed", "JobSet 0.11 or newer", "install the JobSet controller")
        return
    for deployment in client.list_all(DEPLOYMENTS, "jobset-system"):
        for container in deployment["spec"]["template"]["spec"].get("containers", []):
            match = re.search(r"jobset[^:]*:v(\d+)\.(\d+)", container.get("image", ""))
            if match and (int(match[1]), int(match[2])) < HOT_SWAP_JOBSET and spec.slices.spare == "preempt":
                yield error(
                    "JobSet",
                    f"version {match[1]}.{match[2]}",
                    "0.11 or newer for slices.spare: preempt",
                    "update the controller: older ones keep a slice from being preempted",
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


def service_account(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the pods' service account there? Without it no pod is made, and only an event says so."""
    name = spec.trainer.service_account
    if name is not None and client.find(SERVICE_ACCOUNTS, name, spec.cluster_spec.namespace) is None:
        yield error(
            f"ServiceAccount {spec.cluster_spec.namespace}/{name}",
            "not there",
            "one that may write the run's folder",
            f"kubectl create serviceaccount {name} -n {spec.cluster_spec.namespace}, and grant it the bucket",
        )


def queue(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the queue of the cluster file there?"""
    name = spec.cluster_spec.queue
    if name is not None and client.find(LOCAL_QUEUES, name, spec.cluster_spec.namespace) is None:
        yield error(
            f"LocalQueue {spec.cluster_spec.namespace}/{name}",
            "not there",
            "the queue that the cluster file names",
            "make the queue, or set queue: null in the cluster file",
        )


def checkpoint_configuration(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Do the run's nodes have the RAM disk and the bucket that the cluster file says, with a driver that is ready?"""
    found = spec.cluster_spec.configuration_of(spec.pool.machine_type)
    assert found is not None, "a spec without configuration is refused earlier"
    name, wanted = found
    where = f"CheckpointConfiguration {name}"
    configuration = client.find(CHECKPOINT_CONFIGURATIONS, name)
    if configuration is None:
        yield error(where, "not there", f"one with bucket {wanted.bucket!r}", "provision checkpointing on the cluster")
        return
    have = configuration.get("spec") or {}
    recreate = "correct the cluster file, or delete and make the configuration anew (that wipes the RAM disks)"
    if have.get("cloudStorageBucketName") != wanted.bucket:
        yield error(where, f"bucket {have.get('cloudStorageBucketName')!r}", f"bucket {wanted.bucket!r}", recreate)
    if _size(have.get("inMemoryVolumeSize")) != wanted.ram_bytes:
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
    yield from _driver(client, configuration, where)


def nodes(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Are there as many whole slices as the run wants?"""
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec.pool.node_labels().items()))
    pools: dict[str, int] = defaultdict(int)
    for node in client.list_all(NODES, labels=selector):
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


def _driver(client: KubernetesClient, configuration: Mapping[str, Any], where: str) -> Iterator[Finding]:
    name = f"multitier-driver-{configuration['metadata']['uid']}"
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


def _size(text: Any) -> int | None:
    try:
        return parse_bytes(text)
    except ValueError:
        return None
