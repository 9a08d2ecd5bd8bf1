"""The gcloud commands that do what provisioning would do, quoted for a shell. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from everstep.provision.cloud import bodies
from everstep.provision.cloud.policies import Grant
from everstep.provision.cloud.principals import workload_pool
from everstep.spec.cluster import ClusterSpec
from everstep.spec.pools import PoolSpec
from everstep.spec.provisioning import BucketSpec


def command(*words: str, **flags: object) -> str:
    """Return a command: words, then `--flag=value`; a flag that is True stands alone, one that is None is left out."""
    parts = ["gcloud", *words]
    for name, value in flags.items():
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            parts.append(flag if value is True else f"{flag}={value}")
    return shlex.join(parts)


def enable_services(project: str, services: Iterable[str]) -> str:
    """Enable APIs of a project."""
    return command("services", "enable", *sorted(services), project=project)


def create_cluster(spec: ClusterSpec) -> str:
    """Create the cluster with its add-ons, Workload Identity and system nodes."""
    gke = spec.gke
    return command(
        "container",
        "clusters",
        "create",
        spec.name,
        project=spec.project,
        location=spec.location,
        addons=",".join(bodies.ADDONS.values()),
        workload_pool=workload_pool(spec.project),
        node_locations=",".join(gke.node_locations) or None,
        cluster_version=gke.version,
        release_channel="None" if gke.release_channel == "none" else gke.release_channel,
        machine_type=gke.system_nodes.machine_type,
        num_nodes=gke.system_nodes.count,
        network=gke.network,
        subnetwork=gke.subnetwork,
        enable_ip_alias=True,
        workload_metadata="GKE_METADATA",
        scopes="cloud-platform",
        enable_dns_access=spec.endpoint == "dns",
        enable_private_endpoint=spec.endpoint == "private",
        labels=_pairs(bodies.LABELS),
    )


def get_credentials(spec: ClusterSpec) -> str:
    """Let kubectl work on the cluster, over the endpoint that the cluster file names."""
    return command(
        "container",
        "clusters",
        "get-credentials",
        spec.name,
        project=spec.project,
        location=spec.location,
        dns_endpoint=spec.endpoint == "dns",
        internal_ip=spec.endpoint == "private",
    )


def update_cluster(spec: ClusterSpec, **flags: object) -> str:
    """Change the cluster; gcloud takes one kind of change at a time."""
    return command("container", "clusters", "update", spec.name, project=spec.project, location=spec.location, **flags)


def enable_addons(spec: ClusterSpec, fields: Iterable[str]) -> str:
    """Switch add-ons on, given by their fields of AddonsConfig."""
    return update_cluster(spec, update_addons=",".join(f"{bodies.ADDONS[field]}=ENABLED" for field in fields))


def upgrade_control_plane(spec: ClusterSpec, version: str) -> str:
    """Upgrade the control plane."""
    return command(
        "container",
        "clusters",
        "upgrade",
        spec.name,
        master=True,
        cluster_version=version,
        project=spec.project,
        location=spec.location,
    )


def upgrade_node_pool(spec: ClusterSpec, name: str, version: str) -> str:
    """Upgrade the nodes of a node pool."""
    return command(
        "container",
        "clusters",
        "upgrade",
        spec.name,
        node_pool=name,
        cluster_version=version,
        project=spec.project,
        location=spec.location,
    )


def delete_cluster(spec: ClusterSpec) -> str:
    """Delete the cluster and all that runs in it."""
    return command("container", "clusters", "delete", spec.name, project=spec.project, location=spec.location)


def create_node_pool(spec: ClusterSpec, pool: PoolSpec, name: str, *, nodes: int) -> str:
    """Create a node pool that holds one slice."""
    flags: dict[str, object] = {
        "machine_type": pool.machine_type,
        "node_locations": bodies.zone_of(spec, pool),
        "workload_metadata": "GKE_METADATA",
        "scopes": "cloud-platform",
        "spot": pool.spot,
        "labels": _pairs(bodies.LABELS),
    }
    if not pool.is_tpu:
        count = pool.chips_per_node
        flags["accelerator"] = f"type={pool.accelerator},count={count},gpu-driver-version=default"
    elif pool.nodes_per_slice > 1:
        flags |= {"tpu_topology": pool.topology, "placement_type": "COMPACT"}
    if pool.reservation:
        flags |= {"reservation_affinity": "specific", "reservation": pool.reservation}
    if pool.flex_start:
        flags |= {
            "flex_start": True,
            "enable_queued_provisioning": spec.queue is not None,
            "reservation_affinity": "none",
            "max_run_duration": f"{bodies.FLEX_START_SECONDS}s",
            "enable_autoscaling": True,
            "total_min_nodes": 0,
            "total_max_nodes": pool.nodes_per_slice,
            "location_policy": "ANY",
            "no_enable_autorepair": True,
        }
    return _node_pool("create", spec, name, num_nodes=nodes, **flags)


def node_pool_metadata(spec: ClusterSpec, name: str) -> str:
    """Give a node pool the GKE metadata server; its nodes are recreated."""
    return _node_pool("update", spec, name, workload_metadata="GKE_METADATA")


def resize_node_pool(spec: ClusterSpec, name: str, nodes: int) -> str:
    """Resize a node pool, to this many nodes in each of its zones."""
    return command(
        "container",
        "clusters",
        "resize",
        spec.name,
        node_pool=name,
        num_nodes=nodes,
        project=spec.project,
        location=spec.location,
    )


def delete_node_pool(spec: ClusterSpec, name: str) -> str:
    """Delete a node pool and its nodes."""
    return _node_pool("delete", spec, name)


def create_bucket(name: str, project: str, location: str, spec: BucketSpec, *, hierarchical: bool) -> str:
    """Create a bucket."""
    return command(
        "storage",
        "buckets",
        "create",
        f"gs://{name}",
        project=project,
        location=location,
        uniform_bucket_level_access=True,
        enable_hierarchical_namespace=hierarchical,
        public_access_prevention=True,
        soft_delete_duration=f"{spec.soft_delete_days}d" if spec.soft_delete_days else "0",
        default_encryption_key=spec.kms_key,
    )


def soft_delete(name: str, days: int) -> str:
    """Set a bucket's soft-delete policy."""
    if days:
        return command("storage", "buckets", "update", f"gs://{name}", soft_delete_duration=f"{days}d")
    return command("storage", "buckets", "update", f"gs://{name}", clear_soft_delete=True)


def default_key(name: str, key: str) -> str:
    """Set the key that encrypts a bucket's new objects."""
    return command("storage", "buckets", "update", f"gs://{name}", default_encryption_key=key)


def grant_on_bucket(name: str, grant: Grant) -> str:
    """Give a role on a bucket."""
    return command("storage", "buckets", "add-iam-policy-binding", f"gs://{name}", **_binding(grant))


def grant_on_key(key: str, grant: Grant) -> str:
    """Give a role on a Cloud KMS key, given by its whole name."""
    return command("kms", "keys", "add-iam-policy-binding", key, **_binding(grant))


def enable_key(project: str, location: str, ring: str, key: str, version: str) -> str:
    """Enable a version of a Cloud KMS key."""
    return command(
        "kms", "keys", "versions", "enable", version, key=key, keyring=ring, location=location, project=project
    )


def _node_pool(verb: str, spec: ClusterSpec, name: str, **flags: object) -> str:
    return command(
        "container",
        "node-pools",
        verb,
        name,
        cluster=spec.name,
        project=spec.project,
        location=spec.location,
        **flags,
    )


def _binding(grant: Grant) -> dict[str, Any]:
    # Without a word on conditions gcloud asks when the policy has some.
    condition = "None"
    if grant.condition is not None:
        # Expressions hold commas; gcloud takes another delimiter between ^ and ^.
        condition = f"^;^title={grant.condition.title};expression={grant.condition.expression}"
    return {"member": grant.member, "role": grant.role, "condition": condition}


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
