"""The JobSet of an acceptance test: the probe on the nodes of a CheckpointConfiguration, without accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.launch import labels

Manifest = dict[str, Any]

DIRECTORY = "/checkpoint"
POD_INFO = "/etc/probe"
CONTAINER = "probe"
PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Ground:
    """Where the probe runs.

    :param node_selector: and `tolerations`: of the CheckpointConfiguration
    :param slices: node pools with nodes of it, one Job each
    :param nodes_per_slice: nodes that each of them has
    """

    namespace: str
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    slices: int
    nodes_per_slice: int
    image: str

    @property
    def nodes(self) -> int:
        """Return how many nodes there are in all."""
        return self.slices * self.nodes_per_slice


def probe_jobset(
    ground: Ground,
    name: str,
    run: str,
    *,
    backup_minutes: float,
    save_seconds: float,
    patience_seconds: float,
    priority: str | None = None,
    cpu: str = "100m",
    sleep_only: bool = False,
    slices: int | None = None,
) -> Manifest:
    """Return the JobSet.

    :param run: `job-name` of the replicator's configuration: the folder in the bucket
    :param sleep_only: hold the nodes and do nothing, without the checkpoint volume
    :param cpu: what each pod asks for
    """
    slices = ground.slices if slices is None else slices
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": ground.namespace,
            "labels": {"app.kubernetes.io/managed-by": "everstep", "app.kubernetes.io/component": "acceptance"},
            "annotations": {labels.EXCLUSIVE_TOPOLOGY: labels.NODE_POOL},
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {
                "maxRestarts": 5,
                "restartStrategy": "BlockingRecreate",
                "rules": [
                    {
                        "name": "notItsFault",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": slices,
                    "template": {
                        "spec": {
                            "parallelism": ground.nodes_per_slice,
                            "completions": ground.nodes_per_slice,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "podReplacementPolicy": "Failed",
                            "podFailurePolicy": {
                                "rules": [
                                    {
                                        "action": "FailJob",
                                        "onExitCodes": {
                                            "containerName": CONTAINER,
                                            "operator": "In",
                                            "values": [75],
                                        },
                                    },
                                    {
                                        "action": "FailJob",
                                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                                    },
                                ]
                            },
                            "template": {
                                "spec": {
                                    "restartPolicy": "Never",
                                    "terminationGracePeriodSeconds": 5,
                                    "nodeSelector": dict(ground.node_selector),
                                    "tolerations": [dict(one) for one in ground.tolerations],
                                    **({"priorityClassName": priority} if priority else {}),
                                    "containers": [
                                        _sleeper(ground, cpu)
                                        if sleep_only
                                        else _container(
                                            ground, run, slices, cpu, backup_minutes, save_seconds, patience_seconds
                                        )
                                    ],
                                    "volumes": [] if sleep_only else _volumes(),
                                }
                            },
                        }
                    },
                }
            ],
        },
    }


def _sleeper(ground: Ground, cpu: str) -> Manifest:
    return {
        "name": CONTAINER,
        "image": ground.image,
        "command": ["python3", "-c", "import time; time.sleep(100000)"],
        "resources": {"requests": {"cpu": cpu}},
    }


def _container(
    ground: Ground, run: str, slices: int, cpu: str, backup_minutes: float, save_seconds: float, patience_seconds: float
) -> Manifest:
    values = {
        "PROBE_RUN": run,
        "PROBE_DIRECTORY": DIRECTORY,
        "PROBE_POD_INFO": POD_INFO,
        "PROBE_NODES": str(slices * ground.nodes_per_slice),
        "PROBE_SLICES": str(slices),
        "PROBE_BACKUP_MINUTES": f"{backup_minutes:g}",
        "PROBE_SAVE_SECONDS": f"{save_seconds:g}",
        "PROBE_PATIENCE_SECONDS": f"{patience_seconds:g}",
    }
    fields = {
        "PROBE_NODE": "spec.nodeName",
        "PROBE_INDEX": f"metadata.annotations['{labels.COMPLETION_INDEX}']",
    }
    return {
        "name": CONTAINER,
        "image": ground.image,
        "command": ["python3", "-c", PROBE.read_text(encoding="utf-8")],
        "env": [{"name": name, "value": value} for name, value in values.items()]
        + [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        "resources": {"requests": {"cpu": cpu}},
        "volumeMounts": [
            {"name": "checkpoint", "mountPath": DIRECTORY},
            {"name": "pod-info", "mountPath": POD_INFO, "readOnly": True},
        ],
    }


def _volumes() -> list[Manifest]:
    return [
        {"name": "checkpoint", "csi": {"driver": labels.CHECKPOINT_DRIVER}},
        {
            "name": "pod-info",
            "downwardAPI": {"items": [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]},
        },
    ]
