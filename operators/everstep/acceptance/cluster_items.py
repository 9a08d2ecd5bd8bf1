"""What Everstep relies on of the cluster: its version, the driver's names, what the API server refuses."""

from __future__ import annotations

from typing import Any

from everstep.acceptance.items import NotJudged, Record
from everstep.clients import errors
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    PODS,
    PRIORITY_CLASSES,
)

FINALIZER = "checkpointing.gke.io/checkpoint-target-protection"
DRIVER_LABEL = ("k8s-app", "high-scale-checkpointing")
REPLICATOR = "replication-worker"
SPEC_FIELDS = ("cloudStorageBucketName", "nodeSelector", "tolerations", "inMemoryVolumeSize", "gcsFuseMountOptions")
CLASS = "everstep-acceptance"


def judge(record: Record, cluster: KubernetesClient, configuration: dict[str, Any]) -> None:
    """Judge every item of the cluster that needs no workload."""
    _definitions(record, cluster)
    _driver(record, cluster, configuration)
    _priority_classes(record, cluster)


def _definitions(record: Record, cluster: KubernetesClient) -> None:
    with record.item("crd.scope", "CheckpointConfiguration is cluster-wide, in checkpointing.gke.io/v1") as seen:
        definition = cluster.get(CUSTOM_RESOURCE_DEFINITIONS, "checkpointconfigurations.checkpointing.gke.io")
        versions = [one["name"] for one in definition["spec"]["versions"] if one.get("served")]
        seen.expect(definition["spec"]["scope"] == "Cluster" and "v1" in versions, f"served versions {versions}")
    with record.item("crd.fields", "its spec knows the fields that Everstep writes") as seen:
        definition = cluster.get(CUSTOM_RESOURCE_DEFINITIONS, "checkpointconfigurations.checkpointing.gke.io")
        schema = next(one for one in definition["spec"]["versions"] if one["name"] == "v1")["schema"]["openAPIV3Schema"]
        known = ((schema.get("properties") or {}).get("spec") or {}).get("properties") or {}
        if not known:
            raise NotJudged("the definition has no schema for spec")
        missing = [field for field in SPEC_FIELDS if field not in known]
        seen.expect(not missing, f"missing {missing}" if missing else f"all of {', '.join(SPEC_FIELDS)}")
    with record.item("jobset.installed", "the JobSet API is v1alpha2") as seen:
        definition = cluster.get(CUSTOM_RESOURCE_DEFINITIONS, "jobsets.jobset.x-k8s.io")
        versions = [one["name"] for one in definition["spec"]["versions"] if one.get("served")]
        seen.expect("v1alpha2" in versions, f"served versions {versions}")


def _driver(record: Record, cluster: KubernetesClient, configuration: dict[str, Any]) -> None:
    metadata = configuration["metadata"]
    name = f"multitier-driver-{metadata['uid']}"
    with record.item("driver.finalizer", f"a configuration carries the finalizer {FINALIZER}") as seen:
        seen.expect(FINALIZER in (metadata.get("finalizers") or []), metadata.get("finalizers"))
    with record.item("driver.status", "a configuration's status never says whether it is ready") as seen:
        seen.expect(not (configuration.get("status") or {}).get("conditions"), configuration.get("status") or {})
    with record.item("driver.daemonset", "its driver is the DaemonSet multitier-driver-<uid>") as seen:
        found = cluster.get(DAEMON_SETS, name, CHECKPOINTING_NAMESPACE)
        status = found.get("status") or {}
        seen.saw(f"{status.get('numberReady')} of {status.get('desiredNumberScheduled')} ready")
    with record.item("driver.pods", f"its pods carry {'='.join(DRIVER_LABEL)} and a container {REPLICATOR}") as seen:
        pods = [
            pod
            for pod in cluster.list_all(PODS, CHECKPOINTING_NAMESPACE, labels="=".join(DRIVER_LABEL))
            if pod["metadata"]["name"].startswith(name)
        ]
        if not pods:
            raise AssertionError(f"no pod {name}-… has the label")
        containers = sorted(
            one["name"] for key in ("containers", "initContainers") for one in pods[0]["spec"].get(key) or []
        )
        seen.expect(REPLICATOR in containers, ", ".join(containers))


def _priority_classes(record: Record, cluster: KubernetesClient) -> None:
    claim = "the value of a PriorityClass can't be changed (HTTP 422)"
    with record.item("priority.immutable", claim) as seen:
        if cluster.find(PRIORITY_CLASSES, CLASS) is not None:
            raise NotJudged(f"there is a PriorityClass {CLASS} already: delete it")
        body = {"metadata": {"name": CLASS}, "value": 1, "preemptionPolicy": "Never"}
        made = cluster.create(PRIORITY_CLASSES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **body})
        try:
            cluster.patch(PRIORITY_CLASSES, CLASS, {"value": 2})
        except errors.Invalid as refusal:
            seen.saw(f"HTTP {refusal.status}")
        else:
            raise AssertionError("it was changed")
        finally:
            cluster.delete(PRIORITY_CLASSES, CLASS, uid=made["metadata"]["uid"])
