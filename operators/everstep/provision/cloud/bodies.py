"""What is sent to make clusters, node pools and buckets: documents in the APIs' own spelling. Pure."""

from __future__ import annotations

from typing import Any

from everstep.provision.cloud.principals import workload_pool
from everstep.spec.cluster import ClusterSpec
from everstep.spec.pools import PoolSpec
from everstep.spec.provisioning import BucketSpec

Object = dict[str, Any]

# What Everstep makes carries this label, so that people and it itself know it again.
LABELS = {"managed-by": "everstep"}
ADDONS = {"highScaleCheckpointingConfig": "HighScaleCheckpointing", "gcsFuseCsiDriverConfig": "GcsFuseCsiDriver"}
"""Field of AddonsConfig -> name for gcloud."""
GKE_METADATA = {"mode": "GKE_METADATA"}
SYSTEM_POOL = "default-pool"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_DAY = 24 * 60 * 60
FLEX_START_SECONDS = 7 * _DAY


def cluster(spec: ClusterSpec) -> Object:
    """Return the cluster that a cluster file describes, with its system nodes and without its node pools."""
    gke = spec.gke
    body: Object = {
        "name": spec.name,
        "releaseChannel": {"channel": "UNSPECIFIED" if gke.release_channel == "none" else gke.release_channel.upper()},
        "addonsConfig": {field: {"enabled": True} for field in ADDONS},
        "workloadIdentityConfig": {"workloadPool": workload_pool(spec.project)},
        "ipAllocationPolicy": {"useIpAliases": True},
        "resourceLabels": LABELS,
        "nodePools": [
            {
                "name": SYSTEM_POOL,
                "initialNodeCount": gke.system_nodes.count,
                "config": {
                    "machineType": gke.system_nodes.machine_type,
                    "oauthScopes": _SCOPES,
                    "workloadMetadataConfig": GKE_METADATA,
                },
            }
        ],
    }
    given = {
        "initialClusterVersion": gke.version,
        "locations": list(gke.node_locations),
        "network": gke.network,
        "subnetwork": gke.subnetwork,
        "controlPlaneEndpointsConfig": _endpoints(spec.endpoint),
    }
    return body | {key: value for key, value in given.items() if value}


def node_pool(spec: ClusterSpec, pool: PoolSpec, name: str, *, nodes: int) -> Object:
    """Return a node pool that holds one slice.

    :param nodes: with which it begins; flex-start pools begin empty and grow when pods ask
    """
    config: Object = {
        "machineType": pool.machine_type,
        "oauthScopes": _SCOPES,
        "resourceLabels": LABELS,
        "workloadMetadataConfig": GKE_METADATA,
    }
    body: Object = {"name": name, "initialNodeCount": nodes, "config": config}
    if zone := zone_of(spec, pool):
        body["locations"] = [zone]
    if not pool.is_tpu:
        config["accelerators"] = [
            {
                "acceleratorType": pool.accelerator,
                "acceleratorCount": str(pool.chips_per_node),
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ]
    elif pool.nodes_per_slice > 1:
        # GKE refuses a topology for a slice of one node, whose machine type says it.
        body["placementPolicy"] = {"type": "COMPACT", "tpuTopology": pool.topology}
    if pool.spot:
        config["spot"] = True
    if pool.reservation:
        config["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [pool.reservation],
        }
    if pool.flex_start:
        body |= _flex_start(spec, pool)
        config |= {
            "flexStart": True,
            "maxRunDuration": f"{FLEX_START_SECONDS}s",
            "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        }
    return body


def zone_of(spec: ClusterSpec, pool: PoolSpec) -> str | None:
    """Return the zone of a pool's nodes; None when the cluster file does not settle it."""
    if pool.zone:
        return pool.zone
    return spec.node_zones[0] if len(spec.node_zones) == 1 else None


def bucket(name: str, spec: BucketSpec, location: str, *, hierarchical: bool) -> Object:
    """Return a bucket. A scratch bucket has no hierarchical namespace: nothing in it is renamed."""
    body: Object = {
        "name": name,
        "location": location,
        "labels": LABELS,
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        },
        "softDeletePolicy": soft_delete(spec.soft_delete_days),
    }
    if hierarchical:
        body["hierarchicalNamespace"] = {"enabled": True}
    if spec.kms_key:
        body["encryption"] = {"defaultKmsKeyName": spec.kms_key}
    return body


def soft_delete(days: int) -> Object:
    """Return the soft-delete policy of a bucket."""
    return {"retentionDurationSeconds": str(days * _DAY)}


def _flex_start(spec: ClusterSpec, pool: PoolSpec) -> Object:
    body: Object = {
        "initialNodeCount": 0,
        "autoscaling": {
            "enabled": True,
            "totalMinNodeCount": 0,
            "totalMaxNodeCount": pool.nodes_per_slice,
            "locationPolicy": "ANY",
        },
        "management": {"autoRepair": False, "autoUpgrade": True},
    }
    if spec.queue:
        # Nodes then come for ProvisioningRequests only, which Kueue makes; without a queue nobody would.
        body["queuedProvisioning"] = {"enabled": True}
    return body


def _endpoints(endpoint: str) -> Object:
    if endpoint == "dns":
        return {"dnsEndpointConfig": {"allowExternalTraffic": True}}
    if endpoint == "private":
        return {"ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": False}}
    return {}
