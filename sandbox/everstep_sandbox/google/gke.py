"""GKE: clusters, node pools and what their operations do when they are carried out."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.google import errors, messages, shapes, versions
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.operations import Failure, Operations
from everstep_sandbox.google.pools import Pools
from everstep_sandbox.google.state import State
from everstep_sandbox.google.world import World

Object = dict[str, Any]

_CLUSTER = "projects/{}/locations/{}/clusters/{}"
_MUTABLE = {
    "desiredAddonsConfig": "addonsConfig",
    "desiredWorkloadIdentityConfig": "workloadIdentityConfig",
    "desiredLocations": "locations",
    "desiredReleaseChannel": "releaseChannel",
    "desiredLoggingService": "loggingService",
    "desiredMonitoringService": "monitoringService",
    "desiredControlPlaneEndpointsConfig": "controlPlaneEndpointsConfig",
    "desiredMasterAuthorizedNetworksConfig": "masterAuthorizedNetworksConfig",
}
"""What a ClusterUpdate may name, beside versions, and the field of the cluster that it sets."""
_NODE_UPDATE = frozenset({"desiredNodeVersion", "desiredNodePoolId", "desiredImageType"})


class Gke:
    """Handlers of `projects/P/locations/L/clusters…`; each gets a request and the parts of its path."""

    def __init__(self, state: State, world: World, *, speed: float) -> None:
        self._state = state
        self._world = world
        self.operations = Operations(state, self._finish, speed=speed)
        self.pools = Pools(state, self.operations)

    def server_config(self, request: Request, project: str, location: str) -> Object:
        return versions.server_config()

    def list_all(self, request: Request, project: str, location: str) -> Object:
        parent = self._parent(project, location)
        wanted = parent.removesuffix("-") if location == "-" else f"{parent}/"
        return {"clusters": [self._shown(one) for name, one in self._state.clusters.items() if name.startswith(wanted)]}

    def get(self, request: Request, project: str, location: str, name: str) -> Object:
        return self._shown(self._cluster(project, location, name))

    def create(self, request: Request, project: str, location: str) -> Object:
        asked = messages.parsed("CreateClusterRequest", request.document())
        if "cluster" not in asked:
            raise errors.invalid("Cluster is a required field.")
        parent = self._parent(project, location)
        path = f"{parent}/clusters/{asked['cluster'].get('name', '')}"
        if path in self._state.clusters:
            raise errors.GoogleError("ALREADY_EXISTS", f"Already exists: {path}.")
        made = shapes.cluster(asked["cluster"], parent, self._state.number)
        self._state.clusters[path] = made
        return self.operations.start("CREATE_CLUSTER", path, path, {})

    def update(self, request: Request, project: str, location: str, name: str) -> Object:
        asked = messages.parsed("UpdateClusterRequest", request.document())
        found = self._cluster(project, location, name)
        update = asked.get("update") or {}
        etag = update.pop("etag", None)
        if etag and etag != shapes.shown(found)["etag"]:
            raise errors.GoogleError("FAILED_PRECONDITION", f'Etag "{etag}" does not match the cluster\'s.')
        if not update:
            raise errors.invalid("Must specify a field to update.")
        if len(update) > 1 and not update.keys() <= _NODE_UPDATE:
            raise errors.invalid(
                "Exactly one update can be applied to a cluster with each request; found: " + ", ".join(sorted(update))
            )
        path = shapes.path_of(found)
        plan, kind = self._plan(found, update, project)
        self._check_steady(found)
        found["status"] = "RECONCILING"
        return self.operations.start(kind, path, path, plan)

    def _plan(self, found: Object, update: Object, project: str) -> tuple[Object, str]:
        """What to change when the operation ends, and the operation's type. Raises GoogleError 400."""
        if "desiredMasterVersion" in update:
            wanted = versions.resolve(update["desiredMasterVersion"], "Master")
            if versions.key(wanted) < versions.key(found["currentMasterVersion"]):
                raise errors.invalid(
                    f'Master cannot be upgraded to "{wanted}": specified version is not newer than the current '
                    f'version "{found["currentMasterVersion"]}".'
                )
            return {"set": {"currentMasterVersion": wanted}}, "UPGRADE_MASTER"
        if "desiredNodeVersion" in update:
            wanted = versions.resolve(update["desiredNodeVersion"], "Node")
            if update["desiredNodeVersion"] == "-":
                wanted = found["currentMasterVersion"]
            if versions.key(wanted) > versions.key(found["currentMasterVersion"]):
                raise errors.invalid(
                    f'Node version "{wanted}" must not be greater than master version '
                    f'"{found["currentMasterVersion"]}".'
                )
            pool = update.get("desiredNodePoolId")
            if pool:
                self.pools.of(found, pool)
            named = [pool] if pool else [one["name"] for one in found["nodePools"]]
            return {"pools": {one: {"version": wanted} for one in named}}, "UPGRADE_NODES"
        (key, value), *_ = update.items()
        if key not in _MUTABLE:
            raise errors.GoogleError("UNIMPLEMENTED", f"The sandbox does not carry out {key}.")
        if key == "desiredWorkloadIdentityConfig":
            shapes.check_workload_pool(value.get("workloadPool"), project)
        if key == "desiredAddonsConfig" and (found.get("autopilot") or {}).get("enabled"):
            raise errors.invalid("Autopilot clusters do not support changes of this add-on.")
        if key == "desiredAddonsConfig":
            value = shapes.addons(found["addonsConfig"], value)
        return {"set": {_MUTABLE[key]: value}}, "UPDATE_CLUSTER"

    def set_labels(self, request: Request, project: str, location: str, name: str) -> Object:
        asked = messages.parsed("SetLabelsRequest", request.document())
        found = self._cluster(project, location, name)
        if asked.get("labelFingerprint", "") != shapes.fingerprint(found.get("resourceLabels") or {}):
            raise errors.GoogleError("FAILED_PRECONDITION", "Labels could not be set due to fingerprint mismatch.")
        path = shapes.path_of(found)
        self._check_steady(found)
        found["status"] = "RECONCILING"
        plan = {"set": {"resourceLabels": asked.get("resourceLabels") or {}}}
        return self.operations.start("UPDATE_CLUSTER", path, path, plan)

    def delete(self, request: Request, project: str, location: str, name: str) -> Object:
        found = self._cluster(project, location, name)
        path = shapes.path_of(found)
        self.operations.check_idle(path)
        found["status"] = "STOPPING"
        return self.operations.start("DELETE_CLUSTER", path, path, {})

    def operation(self, request: Request, project: str, location: str, name: str) -> Object:
        return self.operations.get(f"{self._parent(project, location)}/operations/{name}")

    def operations_of(self, request: Request, project: str, location: str) -> Object:
        return {"operations": self.operations.list_all(self._parent(project, location))}

    def seed(self, document: Object) -> Object:
        """Puts a cluster there as it is, RUNNING unless it says otherwise: for tests, and the furnished sandbox."""
        parent = self._parent(self._state.project, document["location"])
        pools = document.get("nodePools") or [{"name": "default-pool", "initialNodeCount": 1}]
        extra: Object = {key: document[key] for key in ("status", "statusMessage", "conditions") if key in document}
        given = {key: value for key, value in document.items() if key not in (*extra, "location", "nodePools")}
        asked = messages.parsed("CreateClusterRequest", {"cluster": {**given, "nodePools": pools}})["cluster"]
        autopilot = (asked.get("autopilot") or {}).get("enabled")
        made = shapes.cluster(asked, parent, self._state.number)
        if autopilot:
            made["nodePools"] = [shapes.node_pool(pool, made, self._state.number) for pool in asked["nodePools"]]
        if "endpoint" in document:
            made["endpoint"] = document["endpoint"]
        told = {pool["name"]: pool.get("status", "RUNNING") for pool in pools}
        for pool in made["nodePools"]:
            pool["status"] = told.get(pool["name"], "RUNNING")
        made = {**made, "status": "RUNNING", **extra}
        self._state.clusters[shapes.path_of(made)] = made
        self._state.save()
        return self._shown(made)

    async def _finish(self, record: Object, failure: Failure | None) -> None:
        path, plan = record["cluster"], record["plan"]
        found = self._state.clusters.get(path)
        if found is None:
            return
        kind = record["public"]["operationType"]
        if failure is not None:
            condition = {"code": failure.condition, "message": failure.message}
            found["status"] = "RUNNING"
            for pool in found["nodePools"]:
                if pool["status"] in ("RECONCILING", "STOPPING"):
                    pool["status"] = "RUNNING"
            if kind in ("CREATE_CLUSTER", "DELETE_CLUSTER"):
                found |= {"status": "ERROR", "statusMessage": failure.message, "conditions": [condition]}
            elif kind == "CREATE_NODE_POOL":
                pool = self.pools.of(found, record["target"].rpartition("/")[2])
                pool |= {"status": "ERROR", "statusMessage": failure.message, "conditions": [condition]}
            return
        if kind == "CREATE_CLUSTER":
            await self._world.cluster_made(found)
            for pool in found["nodePools"]:
                pool["status"] = "RUNNING"
        elif kind == "DELETE_CLUSTER":
            await self._world.cluster_gone(found)
            del self._state.clusters[path]
            return
        changed = _applied(found, plan)
        if kind != "CREATE_CLUSTER" or found["nodePools"]:
            await self._world.cluster_changed(changed)
        self._state.clusters[path] = {**changed, "status": "RUNNING"}

    def _check_steady(self, found: Object) -> None:
        """Raises GoogleError unless the cluster may be changed now."""
        self.operations.check_idle(shapes.path_of(found))
        if found["status"] in ("ERROR", "STOPPING", "PROVISIONING"):
            raise errors.GoogleError(
                "FAILED_PRECONDITION", f"Cluster is in state {found['status']} and can't be updated."
            )

    def _shown(self, cluster: Object) -> Object:
        """A cluster as it is answered; one that is being made has no address yet."""
        where = {} if cluster["status"] == "PROVISIONING" else self._world.address(cluster)
        return {**shapes.shown(cluster), **where}

    def _cluster(self, project: str, location: str, name: str) -> Object:
        path = f"{self._parent(project, location)}/clusters/{name}"
        found = self._state.clusters.get(path)
        if found is None:
            raise errors.GoogleError("NOT_FOUND", f"Not found: {path}.")
        return found

    def _parent(self, project: str, location: str) -> str:
        return f"projects/{self._state.project}/locations/{location}"


def _applied(found: Object, plan: Object) -> Object:
    changed = {**found, **plan.get("set", {})}
    changed["nodePools"] = [
        {**pool, **plan.get("pools", {}).get(pool["name"], {}), "status": "RUNNING"}
        if pool["name"] in plan.get("pools", {})
        else pool
        for pool in found["nodePools"]
        if pool["name"] not in plan.get("gone", ())
    ]
    # GKE shows the oldest of the pools' versions, or the control plane's where there is no pool.
    current = [pool["version"] for pool in changed["nodePools"]] or [changed["currentMasterVersion"]]
    changed["currentNodeVersion"] = min(current, key=versions.key)
    return changed
