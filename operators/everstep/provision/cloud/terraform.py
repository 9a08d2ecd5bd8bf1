"""The Terraform resources that declare what provisioning would do. Pure.

An object that exists already has to be imported first, or what is said here merged into the resource that declares it
elsewhere: a comment above each such resource says so. What needs an object that is declared beside it refers to it, so
that Terraform makes them in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everstep.provision.cloud import bodies
from everstep.provision.cloud.hcl import Block, Raw, comment, identifier, resource
from everstep.provision.cloud.policies import Grant
from everstep.provision.cloud.principals import workload_pool
from everstep.spec.cluster import ClusterSpec
from everstep.spec.pools import PoolSpec
from everstep.spec.provisioning import BucketSpec


def services(project: str, names: Iterable[str]) -> str:
    """Declare enabled APIs; destroying a declaration disables nothing."""
    order = comment("Enabled before all others: terraform apply -target= each of these, then terraform apply")
    return order + "\n".join(
        resource(
            "google_project_service",
            identifier(name.partition(".")[0]),
            {"project": project, "service": name, "disable_on_destroy": False},
        )
        for name in sorted(names)
    )


def cluster(spec: ClusterSpec, *, exists: bool = False) -> str:
    """Declare the cluster with add-ons, Workload Identity and system nodes."""
    gke = spec.gke
    values: dict[str, Any] = {
        "name": spec.name,
        "project": spec.project,
        "location": spec.location,
        "node_locations": list(gke.node_locations) or None,
        "min_master_version": gke.version,
        "network": gke.network,
        "subnetwork": gke.subnetwork,
        "initial_node_count": gke.system_nodes.count,
        "resource_labels": bodies.LABELS,
        "release_channel": Block(
            {"channel": "UNSPECIFIED" if gke.release_channel == "none" else gke.release_channel.upper()}
        ),
        "workload_identity_config": Block({"workload_pool": workload_pool(spec.project)}),
        "addons_config": Block(
            {
                "high_scale_checkpointing_config": Block({"enabled": True}),
                "gcs_fuse_csi_driver_config": Block({"enabled": True}),
            }
        ),
        "node_config": Block(
            {
                "machine_type": gke.system_nodes.machine_type,
                "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
                "workload_metadata_config": Block({"mode": "GKE_METADATA"}),
            }
        ),
        "ip_allocation_policy": Block({}),
        "control_plane_endpoints_config": (
            Block({"dns_endpoint_config": Block({"allow_external_traffic": True})}) if spec.endpoint == "dns" else None
        ),
        "private_cluster_config": Block({"enable_private_endpoint": True}) if spec.endpoint == "private" else None,
        "lifecycle": Block({"prevent_destroy": True}),
    }
    text = resource("google_container_cluster", identifier(spec.name), values)
    path = f"projects/{spec.project}/locations/{spec.location}/clusters/{spec.name}"
    return _existing("google_container_cluster", identifier(spec.name), path, text) if exists else text


def node_pool(
    spec: ClusterSpec, pool: PoolSpec, name: str, *, nodes: int, exists: bool = False, new_cluster: bool = False
) -> str:
    """Declare a node pool that holds one slice.

    :param new_cluster: the cluster is declared beside it
    """
    config: dict[str, Any] = {
        "machine_type": pool.machine_type,
        "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "resource_labels": bodies.LABELS,
        "spot": True if pool.spot else None,
        "workload_metadata_config": Block({"mode": "GKE_METADATA"}),
    }
    if pool.reservation:
        config["reservation_affinity"] = Block(
            {
                "consume_reservation_type": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [pool.reservation],
            }
        )
    zone = bodies.zone_of(spec, pool)
    values: dict[str, Any] = {
        "name": name,
        "project": spec.project,
        "location": spec.location,
        "cluster": Raw(f"{_cluster_address(spec)}.name") if new_cluster else spec.name,
        "node_locations": [zone] if zone else None,
        "node_count": nodes,
    }
    if not pool.is_tpu:
        config["guest_accelerator"] = Block(
            {
                "type": pool.accelerator,
                "count": pool.chips_per_node,
                "gpu_driver_installation_config": Block({"gpu_driver_version": "DEFAULT"}),
            }
        )
    elif pool.nodes_per_slice > 1:
        values["placement_policy"] = Block({"type": "COMPACT", "tpu_topology": pool.topology})
    if pool.flex_start:
        del values["node_count"]
        config |= {
            "flex_start": True,
            "max_run_duration": f"{bodies.FLEX_START_SECONDS}s",
            "reservation_affinity": Block({"consume_reservation_type": "NO_RESERVATION"}),
        }
        values |= {
            "initial_node_count": 0,
            "autoscaling": Block(
                {"total_min_node_count": 0, "total_max_node_count": pool.nodes_per_slice, "location_policy": "ANY"}
            ),
            "management": Block({"auto_repair": False, "auto_upgrade": True}),
            "queued_provisioning": Block({"enabled": True}) if spec.queue else None,
        }
    values["node_config"] = Block(config)
    text = resource("google_container_node_pool", identifier(spec.name, name), values)
    path = f"{spec.project}/{spec.location}/{spec.name}/{name}"
    return _existing("google_container_node_pool", identifier(spec.name, name), path, text) if exists else text


def bucket(
    name: str, project: str, location: str, spec: BucketSpec, *, hierarchical: bool, exists: bool = False
) -> str:
    """Declare a bucket."""
    values: dict[str, Any] = {
        "name": name,
        "project": project,
        "location": location,
        "labels": bodies.LABELS,
        "uniform_bucket_level_access": True,
        "public_access_prevention": "enforced",
        "hierarchical_namespace": Block({"enabled": True}) if hierarchical else None,
        "soft_delete_policy": Block({"retention_duration_seconds": spec.soft_delete_days * 24 * 60 * 60}),
        "encryption": Block({"default_kms_key_name": spec.kms_key}) if spec.kms_key else None,
        "lifecycle": Block({"prevent_destroy": True}),
    }
    text = resource("google_storage_bucket", identifier(name), values)
    return _existing("google_storage_bucket", identifier(name), f"{project}/{name}", text) if exists else text


def bucket_member(
    name: str, grant: Grant, label: str, *, new_bucket: bool = False, new_cluster: ClusterSpec | None = None
) -> str:
    """Declare one member of a role on a bucket; other members and roles are left alone.

    :param new_bucket: the bucket is declared beside it
    :param new_cluster: declared beside it; IAM knows its principals only once it is made
    """
    bucket = Raw(f"google_storage_bucket.{identifier(name)}.name") if new_bucket else name
    needed = Raw(f"[{_cluster_address(new_cluster)}]") if new_cluster is not None else None
    values = {"bucket": bucket, **_binding(grant), "depends_on": needed}
    return resource("google_storage_bucket_iam_member", identifier(name, label), values)


def key_member(key: str, grant: Grant) -> str:
    """Declare one member of a role on a Cloud KMS key."""
    values = {"crypto_key_id": key, **_binding(grant)}
    return resource("google_kms_crypto_key_iam_member", identifier(key.rpartition("/")[2], "storage"), values)


def _cluster_address(spec: ClusterSpec) -> str:
    return f"google_container_cluster.{identifier(spec.name)}"


def _binding(grant: Grant) -> dict[str, Any]:
    condition = Block(grant.condition.as_dict()) if grant.condition else None
    return {"role": grant.role, "member": grant.member, "condition": condition}


def _existing(kind: str, name: str, path: str, text: str) -> str:
    return (
        comment(f"It exists. Merge this into the resource that declares it, or: terraform import {kind}.{name} {path}")
        + text
    )
