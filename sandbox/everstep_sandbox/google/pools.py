"""Node pools of GKE's clusters."""

from __future__ import annotations

import math
from typing import Any

from everstep_sandbox.google import errors, messages, shapes, versions
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.operations import Operations
from everstep_sandbox.google.state import State

Object = dict[str, Any]

TPU_CHIPS = {"ct6e-standard-4t": 4, "ct6e-standard-8t": 8, "ct5p-hightpu-4t": 4, "ct5lp-hightpu-4t": 4}
"""Chips of one host, by machine type."""


class Pools:
    """Handlers of `…/clusters/C/nodePools…`."""

    def __init__(self, state: State, operations: Operations) -> None:
        self._state = state
        self._operations = operations

    def list_all(self, request: Request, project: str, location: str, cluster: str) -> Object:
        owner = self._owner(location, cluster)
        return {"nodePools": [shapes.pool_shown(pool) for pool in owner["nodePools"]]}

    def get(self, request: Request, project: str, location: str, cluster: str, name: str) -> Object:
        return shapes.pool_shown(self.of(self._owner(location, cluster), name))

    def create(self, request: Request, project: str, location: str, cluster: str) -> Object:
        asked = messages.parsed("CreateNodePoolRequest", request.document()).get("nodePool") or {}
        owner = self._owner(location, cluster)
        if (owner.get("autopilot") or {}).get("enabled"):
            raise errors.invalid("Autopilot clusters do not support mutating node pools.")
        made = shapes.node_pool(asked, owner, self._state.number)
        _check_tpu(made)
        self._operations.check_idle(shapes.path_of(owner))
        owner["nodePools"].append(made)
        return self._start("CREATE_NODE_POOL", owner, made["name"], {"pools": {made["name"]: {}}})

    def update(self, request: Request, project: str, location: str, cluster: str, name: str) -> Object:
        asked = messages.parsed("UpdateNodePoolRequest", request.document())
        owner = self._owner(location, cluster)
        pool = self.of(owner, name)
        _check_etag(asked.get("etag"), pool)
        wanted: Object = {}
        if "nodeVersion" in asked:
            wanted["version"] = versions.resolve(
                owner["currentMasterVersion"] if asked["nodeVersion"] == "-" else asked["nodeVersion"], "Node"
            )
            if versions.key(wanted["version"]) > versions.key(owner["currentMasterVersion"]):
                raise errors.invalid(
                    f'Node version "{wanted["version"]}" must not be greater than master version '
                    f'"{owner["currentMasterVersion"]}".'
                )
        config = {
            key: asked[key]
            for key in ("workloadMetadataConfig", "resourceLabels", "machineType", "diskSizeGb")
            if key in asked
        }
        if not wanted and not config:
            raise errors.invalid("Must specify a field to update.")
        if config:
            wanted["config"] = {**pool["config"], **config}
        kind = "UPGRADE_NODES" if "version" in wanted else "UPDATE_CLUSTER"
        return self._change(kind, owner, pool, wanted)

    def set_size(self, request: Request, project: str, location: str, cluster: str, name: str) -> Object:
        asked = messages.parsed("SetNodePoolSizeRequest", request.document())
        owner = self._owner(location, cluster)
        pool = self.of(owner, name)
        _check_etag(asked.get("etag"), pool)
        count = asked.get("nodeCount", 0)
        whole = slice_hosts(pool)
        if count < 0 or (whole > 1 and count not in (0, whole)):
            raise errors.invalid(
                f"Invalid node count {count}: a multi-host TPU slice node pool has 0 or {whole} nodes."
                if whole > 1
                else f"Invalid node count {count}."
            )
        return self._change("SET_NODE_POOL_SIZE", owner, pool, {"initialNodeCount": count})

    def delete(self, request: Request, project: str, location: str, cluster: str, name: str) -> Object:
        owner = self._owner(location, cluster)
        pool = self.of(owner, name)
        self._operations.check_idle(shapes.path_of(owner))
        pool["status"] = "STOPPING"
        return self._start("DELETE_NODE_POOL", owner, name, {"gone": [name]})

    def instance_group(self, request: Request, project: str, zone: str, name: str) -> Object:
        """compute.instanceGroupManagers.get: how many machines a pool has in a zone."""
        for owner in self._state.clusters.values():
            for pool in owner["nodePools"]:
                if any(url.endswith(f"/{zone}/instanceGroupManagers/{name}") for url in pool["instanceGroupUrls"]):
                    size = pool["initialNodeCount"]
                    # One that GKE could not fill has conditions that say why.
                    running = 0 if pool["status"] == "ERROR" and pool.get("conditions") else size
                    return {
                        "kind": "compute#instanceGroupManager",
                        "name": name,
                        "zone": zone,
                        "targetSize": size,
                        "currentActions": {"none": running, "creating": size - running},
                    }
        raise errors.GoogleError(
            "NOT_FOUND",
            f"The resource 'projects/{self._state.project}/zones/{zone}/instanceGroupManagers/{name}' was not found",
        )

    def of(self, owner: Object, name: str) -> Object:
        """Raises GoogleError 404."""
        for pool in owner["nodePools"]:
            if pool["name"] == name:
                found: Object = pool
                return found
        raise errors.GoogleError("NOT_FOUND", f"Not found: {shapes.path_of(owner)}/nodePools/{name}.")

    def _change(self, kind: str, owner: Object, pool: Object, wanted: Object) -> Object:
        self._operations.check_idle(shapes.path_of(owner))
        pool["status"] = "RECONCILING"
        return self._start(kind, owner, pool["name"], {"pools": {pool["name"]: wanted}})

    def _start(self, kind: str, owner: Object, name: str, plan: Object) -> Object:
        path = shapes.path_of(owner)
        owner["status"] = "RECONCILING"
        return self._operations.start(kind, path, f"{path}/nodePools/{name}", plan)

    def _owner(self, location: str, cluster: str) -> Object:
        path = f"projects/{self._state.project}/locations/{location}/clusters/{cluster}"
        if path not in self._state.clusters:
            raise errors.GoogleError("NOT_FOUND", f"Not found: {path}.")
        return self._state.clusters[path]


def slice_hosts(pool: Object) -> int:
    """Hosts of a pool's TPU slice; 0 where it is none."""
    chips = TPU_CHIPS.get(pool["config"]["machineType"])
    topology = (pool.get("placementPolicy") or {}).get("tpuTopology")
    if chips is None or not topology:
        return 0
    return math.prod(int(side) for side in topology.split("x")) // chips


def _check_tpu(pool: Object) -> None:
    whole, count = slice_hosts(pool), pool["initialNodeCount"]
    if whole > 1 and count not in (0, whole):
        topology = pool["placementPolicy"]["tpuTopology"]
        raise errors.invalid(
            f"Invalid node count {count} for TPU topology {topology} on {pool['config']['machineType']}: expected 0 or "
            f"{whole}."
        )
    if whole > 1 and (pool.get("placementPolicy") or {}).get("type") != "COMPACT":
        raise errors.invalid("Multi-host TPU slice node pools must have a COMPACT placement policy.")


def _check_etag(asked: str | None, pool: Object) -> None:
    if asked and asked != shapes.pool_shown(pool)["etag"]:
        raise errors.GoogleError("FAILED_PRECONDITION", f'Etag "{asked}" does not match the node pool\'s.')
