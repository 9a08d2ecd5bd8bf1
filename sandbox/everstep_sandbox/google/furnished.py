"""The project of a furnished sandbox: APIs enabled, a cluster with its node pools, pods that may store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everstep_sandbox import nodes
from everstep_sandbox.google import cluster_file, shapes
from everstep_sandbox.google.cluster_file import ClusterFile
from everstep_sandbox.google.state import State

Object = dict[str, Any]

NAME = "sandbox"
LOCATION = "us-east5-a"
_SERVICES = ("compute", "container", "iam", "iamcredentials")
_SLICE = {"machineType": nodes.INSTANCE_TYPE, "workloadMetadataConfig": {"mode": "GKE_METADATA"}}


def furnish(sandbox: Path, state: State) -> None:
    """Does so once in the life of a sandbox; what has been changed since stays as it is."""
    if state.document.get("furnished"):
        return
    machines = nodes.load(sandbox / "machines.json")
    parent = f"projects/{state.project}/locations/{LOCATION}"
    asked = {
        "name": NAME,
        "addonsConfig": {
            "highScaleCheckpointingConfig": {"enabled": True},
            "gcsFuseCsiDriverConfig": {"enabled": True},
        },
        "workloadIdentityConfig": {"workloadPool": f"{state.project}.svc.id.goog"},
        "releaseChannel": {"channel": "REGULAR"},
        "nodePools": [
            _pool(pool, [machine for machine in machines if machine.pool == pool])
            for pool in sorted({machine.pool for machine in machines})
        ],
    }
    cluster = shapes.cluster(asked, parent, state.number)
    for pool in cluster["nodePools"]:
        pool["status"] = "RUNNING"
    name = shapes.path_of(cluster)
    state.clusters[name] = {**cluster, "status": "RUNNING"}
    state.services.extend(f"{service}.googleapis.com" for service in _SERVICES)
    known = ClusterFile(name, state.number, True, True, f"{state.project}.svc.id.goog", furnished=True)
    # Every pod of the cluster may use every bucket, as long as nobody changes the project's policy.
    pool = f"projects/{state.number}/locations/global/workloadIdentityPools/{known.workload_pool}"
    url = f"https://container.googleapis.com/v1/{name}"
    members = [
        f"principalSet://iam.googleapis.com/{pool}/kubernetes.cluster/{url}",
        f"serviceAccount:{known.machine_account}",
    ]
    state.policies[f"projects/{state.project}"] = {
        "version": 1,
        "bindings": [{"role": "roles/storage.objectUser", "members": members}],
        "revision": 1,
    }
    state.document["furnished"] = True
    cluster_file.write(sandbox, known)
    state.save()


def _pool(name: str, machines: list[nodes.Machine]) -> Object:
    placement = {"type": "COMPACT", "tpuTopology": nodes.TOPOLOGY}
    return {"name": name, "initialNodeCount": len(machines), "config": dict(_SLICE), "placementPolicy": placement}
