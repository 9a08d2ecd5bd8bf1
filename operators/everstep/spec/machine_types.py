"""Machine types: their families, and a spelling that documents have but Compute Engine has not. Pure."""

from __future__ import annotations

# Google's page on multi-tier checkpointing calls v5e machines ct5e-…; Compute Engine knows ct5lp-… only.
MISSPELT_FAMILIES = {"ct5e": "ct5lp"}
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
