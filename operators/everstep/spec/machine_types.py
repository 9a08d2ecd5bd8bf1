"""Machine types: their families, and a spelling that documents have but Compute Engine has not. Pure."""

from __future__ import annotations

import re

# Google's page on multi-tier checkpointing calls v5e machines ct5e-…; Compute Engine knows ct5lp-… only.
MISSPELT_FAMILIES = {"ct5e": "ct5lp"}
# Family -> label of its nodes' accelerator (cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus).
_TPU_ACCELERATORS = {
    "tpu7x": "tpu7x",
    "ct6e": "tpu-v6e-slice",
    "ct5p": "tpu-v5p-slice",
    "ct5lp": "tpu-v5-lite-podslice",
    "ct4p": "tpu-v4-podslice",
}
GPU_FAMILIES = ("a2", "a3", "a4", "a4x", "g2", "g4")


def spelt_right(machine_type: str) -> str:
    """Return the name by which Compute Engine knows a machine type."""
    family, dash, rest = machine_type.partition("-")
    return f"{MISSPELT_FAMILIES.get(family, family)}{dash}{rest}"


def is_tpu(machine_type: str) -> bool:
    """Say whether machines of this type have TPUs."""
    return machine_type.startswith(("ct", "tpu"))


def is_gpu(machine_type: str) -> bool:
    """Say whether machines of this type always have GPUs."""
    return machine_type.partition("-")[0] in GPU_FAMILIES


def tpu_accelerator(machine_type: str) -> str | None:
    """Return the accelerator that GKE labels nodes of a TPU machine type with; None for other and unknown types."""
    return _TPU_ACCELERATORS.get(machine_type.partition("-")[0])


def tpu_chips(machine_type: str) -> int | None:
    """Return the chips of a TPU machine type, which stand at its end; None for other types."""
    found = re.fullmatch(r".+-(\d+)t", machine_type) if is_tpu(machine_type) else None
    return int(found[1]) if found else None
