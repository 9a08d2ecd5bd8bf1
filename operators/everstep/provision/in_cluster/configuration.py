"""CheckpointConfigurations: what a cluster file asks for, and how that differs from what a cluster has. Pure.

The controller never rolls a change of a configuration out, so a difference can only be mended by deleting it and making
it anew, which wipes the RAM disks of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everstep.spec import machine_types
from everstep.spec.cluster import CheckpointConfigurationSpec, ClusterSpec
from everstep.spec.findings import Finding, error, warning
from everstep.spec.pools import GPU_RAM_FACTOR, TPU_RAM_FACTOR
from everstep.spec.quantities import as_quantity, format_bytes, parse_bytes, quantity_value, times

Object = dict[str, Any]

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
TPU_TAINT, GPU_TAINT = "google.com/tpu", "nvidia.com/gpu"
# The example of Google's page on multi-tier checkpointing: large sequential files, seen by many nodes.
MOUNT_OPTIONS = (
    "implicit-dirs",
    "metadata-cache:negative-ttl-secs:0",
    "metadata-cache:ttl-secs:-1",
    "metadata-cache:stat-cache-max-size-mb:-1",
    "metadata-cache:type-cache-max-size-mb:-1",
    "file-cache:max-size-mb:-1",
    "file-cache:cache-file-for-range-read:true",
    "file-cache:enable-parallel-downloads:true",
    "file-system:kernel-list-cache-ttl-secs:0",
    "read_ahead_kb=1024",
    "write:enable-streaming-writes:true",
)
# Above this part of a node's memory there is hardly room for the training itself.
LARGE_PART = 0.8


def desired(name: str, wanted: CheckpointConfigurationSpec, cluster: ClusterSpec) -> Object:
    """Return the CheckpointConfiguration object that the cluster file asks for."""
    spec: Object = {
        "cloudStorageBucketName": wanted.bucket,
        "nodeSelector": {INSTANCE_TYPE: wanted.machine_type},
        "tolerations": tolerations(wanted, cluster),
        "inMemoryVolumeSize": as_quantity(wanted.in_memory_volume_size),
        "gcsFuseMountOptions": list(wanted.mount_options or MOUNT_OPTIONS),
    }
    if wanted.csi_ephemeral_limit is not None:
        spec["csiEphemeralLimit"] = as_quantity(wanted.csi_ephemeral_limit)
    return {
        "apiVersion": "checkpointing.gke.io/v1",
        "kind": "CheckpointConfiguration",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "everstep"}},
        "spec": spec,
    }


def tolerations(wanted: CheckpointConfigurationSpec, cluster: ClusterSpec) -> list[Object]:
    """Return what the driver's pods tolerate: as the file says, else the taint of the nodes' accelerator."""
    if wanted.tolerations:
        return [each.model_dump(exclude_none=True) for each in wanted.tolerations]
    keys = {pool.resource for pool in cluster.pools.values() if pool.machine_type == wanted.machine_type}
    if not keys and machine_types.is_tpu(wanted.machine_type):
        keys = {TPU_TAINT}
    if not keys and machine_types.is_gpu(wanted.machine_type):
        keys = {GPU_TAINT}
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in sorted(keys)]


def ram_factor(wanted: CheckpointConfigurationSpec, cluster: ClusterSpec) -> float:
    """Return how many times one node's checkpoint the RAM disk has to hold."""
    factors = [pool.ram_factor for pool in cluster.pools.values() if pool.machine_type == wanted.machine_type]
    return max(factors, default=TPU_RAM_FACTOR if machine_types.is_tpu(wanted.machine_type) else GPU_RAM_FACTOR)


def size_findings(cluster: ClusterSpec) -> list[Finding]:
    """Return what is wrong with the sizes of the cluster file's RAM disks."""
    findings = []
    for name, wanted in cluster.checkpoint_configurations.items():
        if wanted.checkpoint_size is None:
            continue
        factor = ram_factor(wanted, cluster)
        needed = times(parse_bytes(wanted.checkpoint_size), factor)
        if needed > wanted.ram_bytes:
            findings.append(
                error(
                    f"checkpoint_configurations.{name}.in_memory_volume_size",
                    wanted.in_memory_volume_size,
                    f"at least {format_bytes(needed)}, {factor:g} times checkpoint_size {wanted.checkpoint_size}",
                    f"set in_memory_volume_size to {whole_gib(needed)} or more",
                )
            )
    return findings


def memory_findings(where: str, size: int, nodes: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return whether the nodes have the memory for a RAM disk of `size` bytes.

    :param nodes: Node objects; one without `status.allocatable.memory` can't be judged and is left out
    """
    memory = {
        node["metadata"]["name"]: int(known)
        for node in nodes
        if (known := quantity_value(((node.get("status") or {}).get("allocatable") or {}).get("memory"))) is not None
    }
    if not memory:
        return []
    name, least = min(memory.items(), key=lambda each: each[1])
    found = f"a RAM disk of {format_bytes(size)} on node {name}, which has {format_bytes(least)} for pods"
    if size >= least:
        return [
            error(
                where,
                found,
                "less than a node's allocatable memory, and room for the training beside it",
                "set in_memory_volume_size to less, or take larger machines",
            )
        ]
    if size > least * LARGE_PART:
        return [warning(where, found, f"at most {LARGE_PART:.0%} of it, since training needs memory too")]
    return []


def differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], *, explicit: CheckpointConfigurationSpec
) -> list[str]:
    """Return in words how the `spec` of a configuration differs from the wanted one; empty when they mean the same.

    Quantities are compared by value, lists without order. What the cluster file leaves open, and fields that it has no
    word for, make no difference.
    """
    told = []
    bucket = found.get("cloudStorageBucketName")
    if bucket != wanted["cloudStorageBucketName"]:
        told.append(f"bucket {bucket!r} instead of {wanted['cloudStorageBucketName']!r}")
    selector = found.get("nodeSelector") or {}
    if selector != wanted["nodeSelector"]:
        told.append(f"nodeSelector {selector} instead of {wanted['nodeSelector']}")
    for key in ("inMemoryVolumeSize", "csiEphemeralLimit"):
        if key in wanted and quantity_value(found.get(key)) != quantity_value(wanted[key]):
            told.append(f"{key} {found.get(key)!r} instead of {wanted[key]!r}")
    have, want = _tolerations(found), _tolerations(wanted)
    if have != want if explicit.tolerations else not want <= have:
        told.append(f"tolerations {_in_words(have)} instead of {_in_words(want)}")
    if explicit.mount_options and set(found.get("gcsFuseMountOptions") or ()) != set(explicit.mount_options):
        told.append(f"mount options {found.get('gcsFuseMountOptions') or []} instead of {list(explicit.mount_options)}")
    return told


def overlap(one: Mapping[str, Any], other: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """Return why two configurations select the same nodes, None when they don't: such a second one gets no driver.

    :param one: `spec.nodeSelector` of a configuration; an empty one selects every node
    """
    for node in nodes:
        labels = (node["metadata"].get("labels") or {}).items()
        if one.items() <= labels and other.items() <= labels:
            return f"both select node {node['metadata']['name']}"
    if one.items() <= other.items() or other.items() <= one.items():
        return f"nodeSelectors {dict(one) or 'of every node'} and {dict(other) or 'of every node'} include each other"
    return None


def whole_gib(size: float) -> str:
    """Return bytes as a quantity in whole Gi, or Mi when it is less than one, never less than given."""
    unit, word = (2**30, "Gi") if size >= 2**30 else (2**20, "Mi")
    return f"{-int(-size // unit)}{word}"


def _tolerations(spec: Mapping[str, Any]) -> set[tuple[str, str, str, str]]:
    return {
        (
            str(each.get("key") or ""),
            str(each.get("operator") or "Equal"),
            str(each.get("value") or ""),
            str(each.get("effect") or ""),
        )
        for each in spec.get("tolerations") or ()
    }


def _in_words(tolerations: set[tuple[str, str, str, str]]) -> str:
    return "[" + ", ".join(" ".join(part for part in each if part) for each in sorted(tolerations)) + "]"
