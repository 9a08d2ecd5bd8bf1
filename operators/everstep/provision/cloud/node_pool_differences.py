"""In what a node pool differs from what a cluster file says of it, as far as that can't be changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.provision.cloud import bodies
from everstep.spec.cluster import ClusterSpec
from everstep.spec.pools import PoolSpec


def differences(spec: ClusterSpec, pool: PoolSpec, found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return what differs: its name, what the node pool has, what the cluster file says."""
    wanted = bodies.node_pool(spec, pool, str(found["name"]), nodes=pool.nodes_per_slice)
    for field, read in _READ.items():
        has, expected = read(found), read(wanted)
        if field == "topology" and has and pool.is_tpu:
            # A slice of one node is made without a topology, and may have one nevertheless.
            expected = str(pool.topology)
        if has != expected and not _is_left_open(field, pool, expected):
            yield field, has or "none", expected or "none"


def message_of(found: Mapping[str, Any]) -> str:
    """Return what GKE says of a node pool's status."""
    said = [found.get("statusMessage"), *(each.get("message") for each in found.get("conditions") or ())]
    return next((str(each) for each in said if each), "GKE does not say why")


def _is_left_open(field: str, pool: PoolSpec, expected: str) -> bool:
    """Say whether a cluster file has no opinion: on zones that GKE chose, and on how GKE counts TPU chips."""
    return (field == "zones" and not expected) or (field == "accelerators" and pool.is_tpu)


def _config(pool: Mapping[str, Any]) -> Mapping[str, Any]:
    return pool.get("config") or {}


def _topology(pool: Mapping[str, Any]) -> str:
    return str((pool.get("placementPolicy") or {}).get("tpuTopology") or "")


def _accelerators(pool: Mapping[str, Any]) -> str:
    """Return the GPUs of each node; those of TPUs follow from the machine type."""
    kinds = _config(pool).get("accelerators") or ()
    return ", ".join(f"{each.get('acceleratorCount')} x {each.get('acceleratorType')}" for each in kinds)


def _capacity(pool: Mapping[str, Any]) -> str:
    config = _config(pool)
    reservation = config.get("reservationAffinity") or {}
    if config.get("spot"):
        return "spot"
    if config.get("flexStart"):
        return "flex-start"
    if reservation.get("consumeReservationType") == "SPECIFIC_RESERVATION":
        return f"reservation {', '.join(reservation.get('values') or ())}"
    return "on demand"


def _zones(pool: Mapping[str, Any]) -> str:
    return ", ".join(sorted(pool.get("locations") or ()))


_READ = {
    "machine type": lambda pool: str(_config(pool).get("machineType") or ""),
    "topology": _topology,
    "accelerators": _accelerators,
    "capacity": _capacity,
    "zones": _zones,
}
