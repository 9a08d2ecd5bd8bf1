"""The sandbox's machines: what they are called, how they look as Nodes, and their record on disk.

Labels, capacity and taint are those of a GKE TPU v6e slice with a 2x4 topology; see
https://cloud.google.com/kubernetes-engine/docs/concepts/tpus.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from everstep_sandbox.machine_kinds import METADATA_SERVER_LABEL

Object = dict[str, Any]

ACCELERATOR = "tpu-v6e-slice"
INSTANCE_TYPE = "ct6e-standard-4t"
TOPOLOGY = "2x4"
POOL_LABEL = "cloud.google.com/gke-nodepool"
TERMINATION_TAINT = "cloud.google.com/impending-node-termination"

_FURNISHED: Object = {
    "labels": {
        "cloud.google.com/gke-tpu-accelerator": ACCELERATOR,
        "cloud.google.com/gke-tpu-topology": TOPOLOGY,
        "cloud.google.com/machine-family": "ct6e",
        "node.kubernetes.io/instance-type": INSTANCE_TYPE,
        METADATA_SERVER_LABEL: "true",
        "topology.kubernetes.io/region": "local",
        "topology.kubernetes.io/zone": "local-a",
    },
    "resources": {
        "google.com/tpu": "4",
        "cpu": "180",
        "memory": "720Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    },
    "taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}],
    "zone": "local-a",
    "version": "1.34.0",
}

MachineState = Literal["running", "gone", "silent"]


@dataclass(slots=True)
class Machine:
    """One host of a slice. `number` is unique among all machines and decides its address range."""

    name: str
    pool: str
    number: int
    state: MachineState = "running"
    down_at: float | None = None
    """Unix time at which the cloud takes it down, because another host of its slice is lost."""
    repair_at: float | None = None
    """Unix time at which the cloud gives it back, empty."""
    kind: Object | None = None
    """What it is like (see machine_kinds); None for a host of the furnished sandbox's v6e slices."""

    def directory(self, sandbox: Path) -> Path:
        return sandbox / "nodes" / self.name


def plan(slices: int, hosts: int) -> list[Machine]:
    """Machines for `slices` node pools of `hosts` hosts each; raises ValueError when addresses don't suffice."""
    if slices < 1 or hosts < 1 or slices * hosts > 250:
        raise ValueError(f"{slices} slices of {hosts} hosts: expected at least one of each and at most 250 hosts")
    return [
        Machine(
            name=f"gke-sandbox-v6e-{TOPOLOGY}-{slice_number}-{host}",
            pool=f"v6e-{TOPOLOGY}-{slice_number}",
            number=slice_number * hosts + host,
        )
        for slice_number in range(slices)
        for host in range(hosts)
    ]


def save(path: Path, machines: list[Machine]) -> None:
    """Writes the record of all machines, whole or not at all."""
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps([asdict(machine) for machine in machines], indent=1))
    os.replace(aside, path)


def load(path: Path) -> list[Machine]:
    """Reads the record; raises FileNotFoundError where no sandbox was made."""
    return [Machine(**entry) for entry in json.loads(path.read_text())]


def node_object(machine: Machine) -> Object:
    """The Node as its kubelet registers it, without conditions."""
    kind = machine.kind or _FURNISHED
    resources, version = kind["resources"], f"v{kind['version']}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": {
                POOL_LABEL: machine.pool,
                **kind["labels"],
                "kubernetes.io/hostname": machine.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {
            "providerID": f"gce://everstep-sandbox/{kind['zone']}/{machine.name}",
            "taints": kind["taints"],
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {
                "kubeletVersion": version,
                "kubeProxyVersion": version,
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "Everstep sandbox",
                "containerRuntimeVersion": "everstep://1.0",
                "kernelVersion": os.uname().release,
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }
