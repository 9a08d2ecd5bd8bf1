"""Clusters and node pools as GKE shows them: what a request gave, and the values that GKE adds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from typing import Any

from everstep_sandbox.google import errors, versions
from everstep_sandbox.google.operations import timestamp
from everstep_sandbox.google.state import unique

Object = dict[str, Any]

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
# Written by GKE alone; what a request says of them is dropped.
_OUTPUT = frozenset(
    {"selfLink", "zone", "endpoint", "currentMasterVersion", "currentNodeVersion", "createTime", "status", "etag"}
    | {"statusMessage", "currentNodeCount", "expireTime", "location", "conditions", "id", "instanceGroupUrls"}
    | {"labelFingerprint", "nodeConfig", "initialNodeCount"}
)
_ZONE = re.compile(r".+-[a-z]")


def cluster(asked: Object, parent: str, number: str) -> Object:
    """A new cluster, PROVISIONING. `asked` is the request's cluster. Raises GoogleError (400)."""
    name = asked.get("name", "")
    check_name(name, "cluster.name")
    _, project, _, location = parent.split("/")
    channel = (asked.get("releaseChannel") or {}).get("channel", "")
    version = versions.resolve(asked.get("initialClusterVersion", ""), "Master", channel)
    pools = _first_pools(asked)
    found: Object = {key: value for key, value in asked.items() if key not in _OUTPUT and key != "nodePools"}
    kind = "zones" if _ZONE.fullmatch(location) else "locations"
    zones = asked.get("locations") or ([location] if kind == "zones" else [f"{location}-{letter}" for letter in "abc"])
    pool_id = (found.get("workloadIdentityConfig") or {}).get("workloadPool")
    check_workload_pool(pool_id, project)
    found |= {
        "initialClusterVersion": version,
        "currentMasterVersion": version,
        "currentNodeVersion": version,
        "network": asked.get("network", "default"),
        "subnetwork": asked.get("subnetwork", "default"),
        "loggingService": asked.get("loggingService", "logging.googleapis.com/kubernetes"),
        "monitoringService": asked.get("monitoringService", "monitoring.googleapis.com/kubernetes"),
        "addonsConfig": addons({}, asked.get("addonsConfig") or {}),
        "locations": zones,
        "location": location,
        "zone": location,
        "status": "PROVISIONING",
        "createTime": timestamp(time.time()),
        "id": hashlib.sha256(f"{parent}/{name}/{unique()}".encode()).hexdigest(),
        "selfLink": f"https://container.googleapis.com/v1/projects/{project}/{kind}/{location}/clusters/{name}",
        "ipAllocationPolicy": asked.get("ipAllocationPolicy", {"useIpAliases": True}),
        "shieldedNodes": asked.get("shieldedNodes", {"enabled": True}),
        "networkConfig": asked.get("networkConfig", {}),
        "nodePools": [],
    }
    endpoints = found.setdefault("controlPlaneEndpointsConfig", {})
    dns = endpoints.setdefault("dnsEndpointConfig", {})
    dns["endpoint"] = f"gke-{found['id'][:28]}-{number}.{location.rsplit('-', 1)[0]}.gke.goog"
    dns.setdefault("allowExternalTraffic", False)
    endpoints.setdefault("ipEndpointsConfig", {"enabled": True, "enablePublicEndpoint": True})
    found["nodePools"] = [node_pool(pool, found, number) for pool in pools]
    return found


def _first_pools(asked: Object) -> list[Object]:
    if (asked.get("autopilot") or {}).get("enabled"):
        return []
    if asked.get("nodePools"):
        if asked.get("initialNodeCount") or asked.get("nodeConfig"):
            raise errors.invalid('Only one of "initial_node_count/node_config" and "node_pools" can be specified.')
        pools: list[Object] = asked["nodePools"]
        return pools
    count = asked.get("initialNodeCount", 0)
    if count < 1:
        raise errors.invalid("Cluster.initial_node_count must be greater than zero.")
    return [{"name": "default-pool", "initialNodeCount": count, "config": asked.get("nodeConfig") or {}}]


def node_pool(asked: Object, owner: Object, number: str) -> Object:
    """A new node pool of a cluster, PROVISIONING. Raises GoogleError (400)."""
    name = asked.get("name", "")
    check_name(name, "node_pool.name")
    version = versions.resolve(asked.get("version", "") or owner["currentMasterVersion"], "Node")
    if versions.key(version) > versions.key(owner["currentMasterVersion"]):
        raise errors.invalid(
            f'Node version "{version}" must not be greater than master version "{owner["currentMasterVersion"]}".'
        )
    config = {
        "machineType": "e2-medium",
        "diskSizeGb": 100,
        "diskType": "pd-balanced",
        "imageType": "COS_CONTAINERD",
        "serviceAccount": "default",
        "oauthScopes": ["https://www.googleapis.com/auth/devstorage.read_only"],
        "metadata": {"disable-legacy-endpoints": "true"},
        "shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
        **(asked.get("config") or {}),
    }
    if "workloadMetadataConfig" not in config and owner.get("workloadIdentityConfig"):
        # A pool that comes to be with Workload Identity on has the metadata server.
        config["workloadMetadataConfig"] = {"mode": "GKE_METADATA"}
    for pool in owner["nodePools"]:
        if pool["name"] == name:
            raise errors.GoogleError("ALREADY_EXISTS", f"Already exists: {path_of(owner)}/nodePools/{name}.")
    zones = asked.get("locations") or owner["locations"]
    count = asked.get("initialNodeCount", 0)
    group = f"gke-{owner['name']}-{name}-{unique()}-grp"
    return {
        "management": {"autoUpgrade": True, "autoRepair": True},
        "maxPodsConstraint": {"maxPodsPerNode": "110"},
        "podIpv4CidrSize": 24,
        "upgradeSettings": {"maxSurge": 1, "strategy": "SURGE"},
        **{key: value for key, value in asked.items() if key not in _OUTPUT},
        "initialNodeCount": count,
        "config": config,
        "version": version,
        "locations": zones,
        "status": "PROVISIONING",
        "selfLink": f"{owner['selfLink']}/nodePools/{name}",
        "instanceGroupUrls": [
            f"https://www.googleapis.com/compute/v1/projects/{project_of(owner)}/zones/{zone}"
            f"/instanceGroupManagers/{group}"
            for zone in zones
        ],
    }


def shown(owner: Object) -> Object:
    """A cluster as it is answered: with what follows from its node pools, and its etag."""
    found = {**owner, "nodePools": [pool_shown(pool) for pool in owner["nodePools"]]}
    found["currentNodeCount"] = sum(pool["initialNodeCount"] * len(pool["locations"]) for pool in owner["nodePools"])
    found["instanceGroupUrls"] = [url for pool in owner["nodePools"] for url in pool["instanceGroupUrls"]]
    found["labelFingerprint"] = fingerprint(owner.get("resourceLabels") or {})
    if owner["nodePools"]:
        first = owner["nodePools"][0]
        found |= {"nodeConfig": first["config"], "initialNodeCount": first["initialNodeCount"]}
    return {**found, "etag": _etag(found)}


def pool_shown(pool: Object) -> Object:
    return {**pool, "etag": _etag(pool)}


def addons(before: Object, wanted: Object) -> Object:
    """The add-ons after an update, which names only those that change."""
    usual = {
        "httpLoadBalancing": {},
        "kubernetesDashboard": {"disabled": True},
        "networkPolicyConfig": {"disabled": True},
        "gcePersistentDiskCsiDriverConfig": {"enabled": True},
    }
    return {**usual, **before, **wanted}


def fingerprint(labels: Object) -> str:
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:8]


def check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise errors.invalid(
            f'Invalid value for field "{field}": "{name}". Must be lowercase letters, digits and hyphens, start with '
            "a letter, not end with a hyphen, and have at most 40 characters."
        )


def check_workload_pool(pool: str | None, project: str) -> None:
    if pool and pool != f"{project}.svc.id.goog":
        raise errors.invalid(
            f'Invalid value for field "workload_identity_config.workload_pool": "{pool}". Must be '
            f'"{project}.svc.id.goog".'
        )


def path_of(owner: Object) -> str:
    return f"projects/{project_of(owner)}/locations/{owner['location']}/clusters/{owner['name']}"


def project_of(owner: Object) -> str:
    return str(owner["selfLink"].split("/projects/")[1].split("/")[0])


def _etag(document: Object) -> str:
    text = json.dumps({key: value for key, value in document.items() if key != "etag"}, sort_keys=True)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:6]).decode()
