"""GKE's operations on one cluster: joining what is under way, and beginning another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from everstep.clients.errors import Conflict, Forbidden, Invalid
from everstep.clients.google import name_of
from everstep.clients.google_requests import SERVICE_DISABLED
from everstep.provision.changes import Waiting
from everstep.provision.cloud.waiting import is_unsettled

if TYPE_CHECKING:
    from everstep.clients.google import GoogleCloud
    from everstep.spec.cluster import ClusterSpec

Object = dict[str, Any]

# GKE itself gives up on nodes after about an hour; upgrades and recreated nodes of a large pool take longer.
OPERATION_SECONDS = 2 * 60 * 60.0

# How GKE refuses what it would take at another time.
NOT_NOW = ("FAILED_PRECONDITION", "failedPrecondition")


def cluster_of(google: GoogleCloud, spec: ClusterSpec) -> Object | None:
    """Return the cluster of a cluster file; None when there is none, or GKE's API is not enabled."""
    try:
        return google.cluster(spec.project, spec.location, spec.name)
    except Forbidden as refusal:
        if refusal.reason == SERVICE_DISABLED:
            return None
        raise


def joined(google: GoogleCloud, spec: ClusterSpec, cluster: Mapping[str, Any]) -> Waiting | None:
    """Return what is under way on a cluster, whoever began it; None when GKE would take the next operation."""
    for operation in sorted(google.operations(spec.project, spec.location), key=lambda each: each.get("startTime", "")):
        if operation.get("status") in ("PENDING", "RUNNING", "ABORTING") and _is_about(operation, spec.name):
            return _waiting(spec, operation)
    if not is_unsettled(cluster):
        return None
    place = {"project": spec.project, "location": spec.location, "name": spec.name}
    return Waiting("cluster", place, f"GKE, which is at work on cluster {spec.name}", OPERATION_SECONDS)


def begun(google: GoogleCloud, spec: ClusterSpec, begin: Callable[[], Object | None]) -> Waiting | None:
    """Begin an operation and return it to be waited for; None when there is nothing to wait for.

    GKE refuses an operation while another one is under way, which may be this very one, begun by a try whose answer
    was lost: then that one is returned. Raises Conflict or Invalid for what is refused without one.
    """
    try:
        operation = begin()
    except (Conflict, Invalid) as refusal:
        cluster = cluster_of(google, spec)
        waiting = joined(google, spec, cluster) if cluster is not None else None
        if waiting is not None:
            return waiting
        if refusal.reason in NOT_NOW:
            # What was in the way has ended meanwhile.
            raise Conflict(refusal.message, status=refusal.status, reason=refusal.reason) from refusal
        raise
    return _waiting(spec, operation) if operation is not None else None


def _waiting(spec: ClusterSpec, operation: Mapping[str, Any]) -> Waiting:
    name = name_of(spec.project, spec.location, operation)
    target = str(operation.get("targetLink") or "").rpartition(f"/clusters/{spec.name}")[2].strip("/")
    what = f"{operation.get('operationType', 'an operation')} on cluster {spec.name} {target}".rstrip()
    return Waiting("operation", {"service": "container", "name": name}, what, OPERATION_SECONDS)


def _is_about(operation: Mapping[str, Any], cluster: str) -> bool:
    return f"/clusters/{cluster}/" in f"{operation.get('targetLink', '')}/"
