"""Google Cloud beside Cloud Storage's objects: clusters, node pools, APIs, buckets, keys and who may use them.

Documents are plain dictionaries in the APIs' own spelling. Every method raises the errors of `everstep.clients.errors`.
Methods that begin a long operation return it; `name_of` gives the name that it is waited for by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from everstep.clients import errors
from everstep.clients.google_requests import GoogleRequests, Object

# Conditions of a policy are neither shown nor kept below this version (cloud.google.com/iam/docs/policies).
POLICY_VERSION = 3
SERVICES_AT_ONCE = 20


class GoogleCloud:
    """What provisioning and the doctor ask of Google Cloud."""

    def __init__(self, requests: GoogleRequests) -> None:
        self._requests = requests

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()

    def __enter__(self) -> GoogleCloud:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Clusters (GKE, container v1)

    def server_config(self, project: str, location: str) -> Object:
        """Return the versions that GKE offers in a location: `validMasterVersions`, `channels` …"""
        return self._requests.get("container", f"/v1/projects/{project}/locations/{location}/serverConfig")

    def cluster(self, project: str, location: str, name: str) -> Object | None:
        """Return a cluster, or None when there is none."""
        return self._requests.find("container", _cluster(project, location, name))

    def create_cluster(self, project: str, location: str, cluster: Mapping[str, Any]) -> Object:
        """Begin to create a cluster; return the operation. Raises Conflict when there is one of that name."""
        path = f"/v1/projects/{project}/locations/{location}/clusters"
        return self._requests.send("POST", "container", path, {"cluster": dict(cluster)})

    def update_cluster(self, project: str, location: str, name: str, update: Mapping[str, Any]) -> Object:
        """Begin a change; return the operation.

        :param update: a ClusterUpdate, such as `{"desiredAddonsConfig": …}`; one field at a time
        """
        return self._requests.send("PUT", "container", _cluster(project, location, name), {"update": dict(update)})

    # Node pools

    def node_pools(self, project: str, location: str, cluster: str) -> list[Object]:
        """Return the node pools of a cluster. Raises NotFound without the cluster."""
        path = f"{_cluster(project, location, cluster)}/nodePools"
        return list(self._requests.get("container", path).get("nodePools") or [])

    def node_pool_size(self, node_pool: Mapping[str, Any]) -> int:
        """Return how many nodes a pool is to have now, in all its zones.

        A node pool tells only how many it began with; its instance groups know (compute v1).
        """
        return sum(int(group["targetSize"]) for group in self._instance_groups(node_pool))

    def node_pool_running(self, node_pool: Mapping[str, Any]) -> int:
        """Return how many machines of a pool run and are left alone: none that is being made, repaired or deleted."""
        return sum(
            int((group.get("currentActions") or {}).get("none") or 0) for group in self._instance_groups(node_pool)
        )

    def _instance_groups(self, node_pool: Mapping[str, Any]) -> list[Object]:
        urls = [str(url) for url in node_pool.get("instanceGroupUrls") or []]
        return [self._requests.get("compute", "/compute/v1/" + url.split("/compute/v1/", 1)[1]) for url in urls]

    def create_node_pool(self, project: str, location: str, cluster: str, node_pool: Mapping[str, Any]) -> Object:
        """Begin to create a node pool; return the operation. Raises Conflict when there is one of that name."""
        path = f"{_cluster(project, location, cluster)}/nodePools"
        return self._requests.send("POST", "container", path, {"nodePool": dict(node_pool)})

    def update_node_pool(
        self, project: str, location: str, cluster: str, name: str, update: Mapping[str, Any]
    ) -> Object:
        """Begin a change of a node pool, which may recreate its nodes; return the operation."""
        return self._requests.send("PUT", "container", _pool(project, location, cluster, name), dict(update))

    def resize_node_pool(self, project: str, location: str, cluster: str, name: str, nodes: int) -> Object:
        """Begin to resize a node pool; return the operation.

        :param nodes: in each of its zones
        """
        path = f"{_pool(project, location, cluster, name)}:setSize"
        return self._requests.send("POST", "container", path, {"nodeCount": nodes})

    def delete_node_pool(self, project: str, location: str, cluster: str, name: str) -> Object | None:
        """Begin to delete a node pool; return the operation, or None when there is no such pool."""
        try:
            return self._requests.send("DELETE", "container", _pool(project, location, cluster, name))
        except errors.NotFound:
            return None

    def operations(self, project: str, location: str) -> list[Object]:
        """Return GKE's operations in a location, of everybody, those that have ended lately among them."""
        path = f"/v1/projects/{project}/locations/{location}/operations"
        return list(self._requests.get("container", path).get("operations") or [])

    # Projects and APIs

    def project_number(self, project: str) -> int:
        """Return the number of a project (resource manager v3). Raises Forbidden too when there is no such project."""
        document = self._requests.get("cloudresourcemanager", f"/v3/projects/{project}")
        return int(str(document["name"]).removeprefix("projects/"))

    def enabled_services(self, project: str) -> set[str]:
        """Return the names of a project's enabled APIs, such as `container.googleapis.com`."""
        query = {"filter": "state:ENABLED", "pageSize": 200}
        found = self._requests.pages("serviceusage", f"/v1/projects/{project}/services", "services", query)
        return {str(service["name"]).rpartition("/")[2] for service in found}

    def enable_services(self, project: str, services: Iterable[str]) -> Object:
        """Begin to enable at most 20 APIs; return the operation, which may have ended already."""
        names = sorted(services)
        if len(names) > SERVICES_AT_ONCE:
            raise ValueError(f"at most {SERVICES_AT_ONCE} APIs at once, not {len(names)}")
        path = f"/v1/projects/{project}/services:batchEnable"
        return self._requests.send("POST", "serviceusage", path, {"serviceIds": names})

    # Buckets (storage v1)

    def bucket(self, name: str) -> Object | None:
        """Return a bucket, or None when there is none. Raises Forbidden for another project's bucket."""
        return self._requests.find("storage", _bucket(name))

    def create_bucket(self, project: str, bucket: Mapping[str, Any]) -> Object:
        """Create a bucket. Raises Conflict when anybody in the world has one of that name."""
        return self._requests.send("POST", "storage", "/storage/v1/b", dict(bucket), {"project": project})

    def patch_bucket(self, name: str, patch: Mapping[str, Any], *, metageneration: int) -> Object:
        """Change a bucket. Raises Conflict when it is not in the state of that metageneration any more."""
        query = {"ifMetagenerationMatch": metageneration}
        return self._requests.send("PATCH", "storage", _bucket(name), dict(patch), query)

    def bucket_policy(self, name: str) -> Object:
        """Return who may do what with a bucket, with conditions and etag."""
        query = {"optionsRequestedPolicyVersion": POLICY_VERSION}
        return self._requests.get("storage", f"{_bucket(name)}/iam", query)

    def set_bucket_policy(self, name: str, policy: Mapping[str, Any]) -> Object:
        """Replace the policy that had the etag of this one. Raises Conflict when it has another one by now."""
        return self._requests.send("PUT", "storage", f"{_bucket(name)}/iam", dict(policy))

    def storage_agent(self, project: str) -> str:
        """Return the e-mail address of the account that Cloud Storage encrypts a project's objects as."""
        document = self._requests.get("storage", f"/storage/v1/projects/{project}/serviceAccount")
        return str(document["email_address"])

    # Keys (Cloud KMS v1)

    def key(self, key: str) -> Object | None:
        """Return a key with its primary version, given by its whole name; None when there is none."""
        return self._requests.find("cloudkms", f"/v1/{key}")

    def key_policy(self, key: str) -> Object:
        """Return who may do what with a key, given by its whole name `projects/…/cryptoKeys/…`."""
        query = {"options.requestedPolicyVersion": POLICY_VERSION}
        return self._requests.get("cloudkms", f"/v1/{key}:getIamPolicy", query)

    def set_key_policy(self, key: str, policy: Mapping[str, Any]) -> Object:
        """Replace the policy that had the etag of this one. Raises Conflict when it has another one by now."""
        return self._requests.send("POST", "cloudkms", f"/v1/{key}:setIamPolicy", {"policy": dict(policy)})


def name_of(project: str, location: str, operation: Mapping[str, Any]) -> str:
    """Return the whole name of a GKE operation; its own `name` is only the last part."""
    return f"projects/{project}/locations/{location}/operations/{operation['name']}"


def _cluster(project: str, location: str, name: str) -> str:
    return f"/v1/projects/{project}/locations/{location}/clusters/{name}"


def _pool(project: str, location: str, cluster: str, name: str) -> str:
    return f"{_cluster(project, location, cluster)}/nodePools/{name}"


def _bucket(name: str) -> str:
    return f"/storage/v1/b/{quote(name, safe='')}"
