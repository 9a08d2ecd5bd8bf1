"""Pools of the cluster file: accelerators of one kind, as node pools of GKE."""

from __future__ import annotations

import math
import re
from typing import Self

from pydantic import Field, model_validator

from everstep.spec import machine_types
from everstep.spec.cluster_names import Given, MachineType
from everstep.spec.parsing import Strict

TPU_RESOURCE = "google.com/tpu"
GPU_RESOURCE = "nvidia.com/gpu"
# What a RAM disk must hold, as a multiple of one node's checkpoint (GKE documentation of multi-tier checkpointing).
TPU_RAM_FACTOR = 2.2
GPU_RAM_FACTOR = 6.6


class PoolSpec(Strict):
    """Node pools of one kind: each holds one TPU slice, or one group of GPU nodes."""

    accelerator: Given = Field(description="Value of the node label that names the accelerator, e.g. tpu-v6e-slice")
    topology: str | None = Field(default=None, description="TPU topology of one slice, e.g. 2x4; none for GPUs")
    machine_type: MachineType = Field(description="Machine type of the nodes, e.g. ct6e-standard-4t")
    chips_per_node: int = Field(ge=1, description="TPU chips or GPUs that one node offers")
    nodes_per_slice: int = Field(ge=1, description="Nodes of one slice")
    slices: int = Field(ge=1, description="Slices (node pools) of this kind that the cluster has")
    spot: bool = Field(default=False, description="Nodes are Spot VMs")
    flex_start: bool = Field(default=False, description="Nodes are queued for by flex-start; they live for 7 days")
    reservation: Given | None = Field(default=None, description="Nodes come from this reservation")
    zone: Given | None = Field(
        default=None, description="Zone of the nodes; needed where the cluster's nodes have several"
    )
    node_pools: str | None = Field(
        default=None,
        pattern=r"^[a-z]([-a-z0-9]{0,34}[a-z0-9])?$",
        description="Node pools are called <this>-0, <this>-1, …; the pool's own name if absent",
    )

    @property
    def is_tpu(self) -> bool:
        """Say whether the pool has TPUs; otherwise it has GPUs."""
        return self.accelerator.startswith("tpu")

    @property
    def resource(self) -> str:
        """Return the extended resource that a container asks for."""
        return TPU_RESOURCE if self.is_tpu else GPU_RESOURCE

    @property
    def ram_factor(self) -> float:
        """Return how many times one node's checkpoint the RAM disk has to hold."""
        return TPU_RAM_FACTOR if self.is_tpu else GPU_RAM_FACTOR

    def node_labels(self) -> dict[str, str]:
        """Return the labels that GKE puts on the nodes of this kind and a pod selects them by."""
        labels = {"node.kubernetes.io/instance-type": self.machine_type}
        if self.is_tpu:
            labels["cloud.google.com/gke-tpu-accelerator"] = self.accelerator
            labels["cloud.google.com/gke-tpu-topology"] = str(self.topology)
        else:
            labels["cloud.google.com/gke-accelerator"] = self.accelerator
        if self.spot:
            labels["cloud.google.com/gke-spot"] = "true"
        return labels

    @model_validator(mode="after")
    def _one_kind_of_capacity(self) -> Self:
        kinds = [name for name in ("spot", "flex_start", "reservation") if getattr(self, name)]
        if len(kinds) > 1:
            raise ValueError(f"one kind of capacity, but {' and '.join(kinds)} are given")
        return self

    @model_validator(mode="after")
    def _machine_type_agrees(self) -> Self:
        label = machine_types.tpu_accelerator(self.machine_type)
        if label is not None and label != self.accelerator:
            raise ValueError(
                f"accelerator {label}, the label of {self.machine_type} nodes, but {self.accelerator!r} is given"
            )
        chips = machine_types.tpu_chips(self.machine_type)
        if chips is not None and chips != self.chips_per_node:
            raise ValueError(f"chips_per_node {chips} on {self.machine_type}, but {self.chips_per_node} is given")
        return self

    @model_validator(mode="after")
    def _topology_agrees(self) -> Self:
        if not self.is_tpu:
            if self.topology is not None:
                raise ValueError(f"no topology, since the accelerator {self.accelerator!r} is not a TPU")
            return self
        if self.topology is None:
            raise ValueError(f"a topology, since the accelerator {self.accelerator!r} is a TPU")
        if not re.fullmatch(r"\d+(x\d+){1,2}", self.topology):
            raise ValueError(f"a topology such as 2x4 or 4x4x4, not {self.topology!r}")
        sides = [int(side) for side in self.topology.split("x")]
        if len(sides) == 2 and sides != sorted(sides):
            raise ValueError(f"the smaller side of a topology first, as in {sides[1]}x{sides[0]}")
        chips = math.prod(sides)
        if chips != self.chips_per_node * self.nodes_per_slice:
            raise ValueError(
                f"chips_per_node x nodes_per_slice = chips of the topology, but {self.chips_per_node} x "
                f"{self.nodes_per_slice} = {self.chips_per_node * self.nodes_per_slice} and {self.topology} has {chips}"
            )
        return self
