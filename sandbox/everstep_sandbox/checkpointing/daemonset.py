"""The driver's DaemonSet for a CheckpointConfiguration, and the checks that come before it is made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Object = dict[str, Any]

NAMESPACE = "gke-managed-checkpointing"
SERVICE_ACCOUNT = "gke-checkpointing-multitier-node"
DRIVER_LABELS = {"k8s-app": "high-scale-checkpointing"}
CONFIG_LABEL = "highscalecheckpointing.gke.io/config-name"
FINALIZER = "checkpointing.gke.io/checkpoint-target-protection"

_QUANTITY = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|m)?")


class Invalid(Exception):
    """The configuration can't be served; the message says what was found and expected."""


def daemonset_name(configuration: Object) -> str:
    return f"multitier-driver-{configuration['metadata']['uid']}"


def selected(configuration: Object, nodes: Iterable[Object]) -> set[str]:
    """Names of the nodes that the configuration is for; an empty selector matches every node."""
    wanted = configuration["spec"].get("nodeSelector") or {}
    return {
        node["metadata"]["name"] for node in nodes if wanted.items() <= (node["metadata"].get("labels") or {}).items()
    }


def overlaps(configuration: Object, nodes: Iterable[Object], driver_pods: Iterable[Object]) -> bool:
    """Whether selected nodes already run a driver. Raises Invalid while any driver pod is not scheduled: the real
    controller can't tell then, so one pending driver pod blocks every new configuration."""
    name = daemonset_name(configuration)
    own = selected(configuration, nodes)
    taken = set()
    for pod in driver_pods:
        node = pod["spec"].get("nodeName")
        if not node:
            raise Invalid(f"Pod {pod['metadata']['name']} is not scheduled to a node yet.")
        if not pod["metadata"]["name"].startswith(f"{name}-"):
            taken.add(node)
    return bool(own & taken)


def driver_daemonset(configuration: Object, *, directory: Path, rank_server: str) -> Object:
    """Raises Invalid when a field that the driver needs is missing or makes no sense."""
    spec, metadata = configuration["spec"], configuration["metadata"]
    bucket = spec.get("cloudStorageBucketName")
    size = str(spec.get("inMemoryVolumeSize", ""))
    if not bucket or "/" in bucket:
        raise Invalid(f"spec.cloudStorageBucketName is '{bucket}': expected a bucket's name without gs://.")
    if not _QUANTITY.fullmatch(size):
        raise Invalid(f"spec.inMemoryVolumeSize is '{size}': expected a quantity such as 200Gi.")
    labels = {**DRIVER_LABELS, CONFIG_LABEL: metadata["name"]}
    environment: list[Object] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SANDBOX_DIRECTORY", "value": str(directory)},
        {"name": "RANK_SERVER", "value": rank_server},
        {"name": "BUCKET", "value": bucket},
        {"name": "RAM_DISK_SIZE", "value": size},
    ]
    container = {
        "name": "replication-worker",
        "image": "everstep.dev/sandbox/multitier-driver",
        "command": ["python", "-m", "everstep_sandbox.checkpointing.driver"],
        "env": environment,
        "ports": [{"name": "replication", "containerPort": 4242}],
    }
    # The bucket is mounted before any container starts: pods without access to it stay in Init.
    options = ",".join(spec.get("gcsFuseMountOptions") or ())
    attributes = {"bucketName": bucket, **({"mountOptions": options} if options else {})}
    bucket_volume = {"name": "gcs", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}
    sidecar = {"name": "gke-gcsfuse-sidecar", "image": "everstep.dev/sandbox/gcsfuse-sidecar", "command": ["true"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": daemonset_name(configuration),
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "checkpointing.gke.io/v1",
                    "kind": "CheckpointConfiguration",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": spec.get("nodeSelector") or {},
                    "tolerations": spec.get("tolerations") or [],
                    "priorityClassName": "system-node-critical",
                    "serviceAccountName": SERVICE_ACCOUNT,
                    "initContainers": [sidecar],
                    "volumes": [bucket_volume],
                    "terminationGracePeriodSeconds": 5,
                    "containers": [container],
                },
            },
        },
    }
