"""Machines of a GKE node pool as Nodes: labels, resources and taints by machine type.

Shapes of accelerator machines: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and
https://cloud.google.com/compute/docs/gpus. A type that is not listed is taken by its name (`e2-standard-4`: 4 CPUs).
"""

from __future__ import annotations

import math
import re
from typing import Any

Object = dict[str, Any]

METADATA_SERVER_LABEL = "iam.gke.io/gke-metadata-server-enabled"

# Machine type -> TPU accelerator, chips of a host, CPUs, memory in GiB.
_TPUS = {
    "ct6e-standard-1t": ("tpu-v6e-slice", 1, 44, 176),
    "ct6e-standard-4t": ("tpu-v6e-slice", 4, 180, 720),
    "ct6e-standard-8t": ("tpu-v6e-slice", 8, 180, 1440),
    "ct5p-hightpu-1t": ("tpu-v5p-slice", 1, 208, 448),
    "ct5p-hightpu-2t": ("tpu-v5p-slice", 2, 208, 448),
    "ct5p-hightpu-4t": ("tpu-v5p-slice", 4, 208, 448),
    "ct5lp-hightpu-1t": ("tpu-v5-lite-podslice", 1, 24, 48),
    "ct5lp-hightpu-4t": ("tpu-v5-lite-podslice", 4, 112, 192),
    "ct5lp-hightpu-8t": ("tpu-v5-lite-podslice", 8, 224, 384),
}
# Machine type -> GPU accelerator, GPUs, CPUs, memory in GiB.
_GPUS = {
    "a2-highgpu-1g": ("nvidia-tesla-a100", 1, 12, 85),
    "a2-highgpu-8g": ("nvidia-tesla-a100", 8, 96, 680),
    "a3-highgpu-8g": ("nvidia-h100-80gb", 8, 208, 1872),
    "a3-megagpu-8g": ("nvidia-h100-mega-80gb", 8, 208, 1872),
    "a3-ultragpu-8g": ("nvidia-h200-141gb", 8, 224, 2952),
    "a4-highgpu-8g": ("nvidia-b200", 8, 224, 3968),
}
_MEMORY_PER_CPU = {"standard": 4, "highmem": 8, "highcpu": 1, "medium": 2, "small": 1}


def of_pool(pool: Object, zone: str) -> Object:
    """What a node pool's machines in a zone are like: `labels`, `resources`, `taints`, `zone`, GKE `version`.

    `pool` is as GKE's API shows it. Machines of which anything of this changes are made anew, as GKE does it.
    """
    config = pool["config"]
    machine_type = config["machineType"]
    labels = {
        "node.kubernetes.io/instance-type": machine_type,
        "cloud.google.com/machine-family": machine_type.partition("-")[0],
        "topology.kubernetes.io/region": zone.rsplit("-", 1)[0],
        "topology.kubernetes.io/zone": zone,
    }
    taints: list[Object] = []
    cpus, memory, more = _plain(machine_type)
    if machine_type in _TPUS:
        accelerator, chips, cpus, memory = _TPUS[machine_type]
        more = {"google.com/tpu": str(chips)}
        labels["cloud.google.com/gke-tpu-accelerator"] = accelerator
        labels["cloud.google.com/gke-tpu-topology"] = (pool.get("placementPolicy") or {}).get(
            "tpuTopology"
        ) or _one_host(chips)
        taints.append({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"})
    elif machine_type in _GPUS:
        accelerator, count, cpus, memory = _GPUS[machine_type]
        more = {"nvidia.com/gpu": str(count)}
        labels["cloud.google.com/gke-accelerator"] = accelerator
        taints.append({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
    if config.get("spot"):
        labels["cloud.google.com/gke-spot"] = "true"
    if (config.get("workloadMetadataConfig") or {}).get("mode") == "GKE_METADATA":
        labels[METADATA_SERVER_LABEL] = "true"
    effects = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
    for taint in config.get("taints") or ():
        taints.append({"key": taint["key"], "value": taint.get("value", ""), "effect": effects[taint["effect"]]})
    return {
        "labels": {**labels, **(config.get("labels") or {})},
        "resources": {
            "cpu": str(cpus),
            "memory": f"{memory}Gi",
            "ephemeral-storage": "100Gi",
            "pods": "110",
            **more,
        },
        "taints": taints,
        "zone": zone,
        "version": pool["version"],
    }


def _plain(machine_type: str) -> tuple[int, int, dict[str, str]]:
    _, _, rest = machine_type.partition("-")
    kind, _, count = rest.partition("-")
    cpus = int(count) if re.fullmatch(r"\d+", count) else 2
    return cpus, math.ceil(cpus * _MEMORY_PER_CPU.get(kind, 4)), {}


def _one_host(chips: int) -> str:
    return {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4"}[chips]
