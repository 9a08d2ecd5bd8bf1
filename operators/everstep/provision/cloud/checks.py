"""What can be known to be wrong with the cloud half of a cluster file before anybody is asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everstep.provision.cloud.bodies import zone_of
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import Finding, error

_LOCATION = re.compile(r"[a-z]+-[a-z]+\d+(-[a-z])?")
_DAY = 24 * 60 * 60
# Cluster and node pool names in GKE.
NAME_AT_MOST = 40
# What lies in which (cloud.google.com/storage/docs/locations).
_MULTI_REGIONS = {"us": ("us-",), "eu": ("europe-",), "asia": ("asia-",)}
_NOT_EU = ("europe-west2", "europe-west6")
_DUAL_REGIONS = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
EGRESS = (
    "the cluster's region, or a multi-region or dual-region around it: every backup and every restore from elsewhere "
    "is billed as transfer between regions, and restores wait for it"
)


def cloud_findings(spec: ClusterSpec) -> list[Finding]:
    """Return remarks, and all mistakes that would cost money, or a long wait, to find out by trying."""
    findings = [*_places(spec), *_pools(spec), *_buckets(spec), *spec.remarks()]
    if len(spec.name) > NAME_AT_MOST:
        findings.append(error(f"cluster {spec.name}", f"{len(spec.name)} characters", f"at most {NAME_AT_MOST}"))
    return findings


def bucket_location(spec: ClusterSpec, bucket: str) -> str:
    """Return where a bucket is to be, in lower case."""
    return (spec.bucket(bucket).location or spec.region).lower()


def is_near(location: str, region: str, data_locations: tuple[str, ...] = ()) -> bool:
    """Say whether a bucket's location is a region or holds it.

    :param data_locations: the two regions of a dual-region that somebody put together
    """
    location = location.lower()
    if data_locations:
        return region in (each.lower() for each in data_locations)
    if location == region or region in _DUAL_REGIONS.get(location, ()):
        return True
    return region.startswith(_MULTI_REGIONS.get(location, ("-",))) and not (location == "eu" and region in _NOT_EU)


def location_of(bucket: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return a bucket's location, and its two regions where it is a dual-region that somebody put together."""
    placed = (bucket.get("customPlacementConfig") or {}).get("dataLocations") or ()
    return str(bucket.get("location", "")).lower(), tuple(str(each).lower() for each in placed)


def soft_delete_days(bucket: Mapping[str, Any]) -> int:
    """Return for how many days a bucket keeps what was deleted, parts of a day for a whole one; 0 when it does not."""
    seconds = int((bucket.get("softDeletePolicy") or {}).get("retentionDurationSeconds") or 0)
    return -(-seconds // _DAY)


def cost_of_soft_delete(days: int) -> str:
    """Return in words what a policy means for the bill."""
    if not days:
        return "soft delete is off: what a sweep empties from its trash is gone, and no longer billed"
    return f"soft delete for {days} days: every deleted backup is billed in full for {days} days more"


def _places(spec: ClusterSpec) -> Iterator[Finding]:
    if not _LOCATION.fullmatch(spec.location):
        yield error("location", repr(spec.location), "a region such as us-east5, or a zone such as us-east5-a")
        return
    for zone in spec.gke.node_locations:
        if not _is_zone_of(zone, spec.region):
            yield error("gke.node_locations", repr(zone), f"zones of the cluster's region {spec.region}")
    if len(set(spec.gke.node_locations)) < len(spec.gke.node_locations):
        yield error("gke.node_locations", ", ".join(spec.gke.node_locations), "each zone once")
    is_zonal = spec.location != spec.region
    if is_zonal and spec.gke.node_locations and spec.location not in spec.gke.node_locations:
        yield error(
            "gke.node_locations",
            ", ".join(spec.gke.node_locations),
            f"{spec.location} among them: GKE takes no zonal cluster without nodes in its own zone",
            "add it, or give single pools a zone instead",
        )


def _pools(spec: ClusterSpec) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for pool, kind in spec.pools.items():
        where = f"pools.{pool}"
        if kind.zone and not _is_zone_of(kind.zone, spec.region):
            yield error(f"{where}.zone", repr(kind.zone), f"a zone of the cluster's region {spec.region}")
        if zone_of(spec, kind) is None:
            known = ", ".join(spec.node_zones) or f"those of {spec.region}, of which GKE would choose"
            yield error(
                where,
                f"no zone, and the cluster has several: {known}",
                "one zone for all nodes of a slice",
                "add zone:",
            )
        for name in spec.node_pool_names(pool):
            other = owners.setdefault(name, pool)
            if other != pool:
                yield error(where, f"a node pool {name!r}, which pool {other!r} has too", "names of its own")
        longest = max(spec.node_pool_names(pool), key=len)
        if len(longest) > NAME_AT_MOST:
            yield error(
                where,
                f"a node pool {longest!r} of {len(longest)} characters",
                f"at most {NAME_AT_MOST}",
                "give the pool a shorter node_pools",
            )


def _is_zone_of(zone: str, region: str) -> bool:
    return re.fullmatch(rf"{re.escape(region)}-[a-z]", zone) is not None


def _buckets(spec: ClusterSpec) -> Iterator[Finding]:
    for name in bucket_names(spec):
        where, location = f"bucket {name}", bucket_location(spec, name)
        if not re.fullmatch(r"[a-z]+|[a-z]+\d|[a-z]+-[a-z]+\d+", location):
            yield error(
                where,
                f"location {spec.bucket(name).location!r}",
                f"a region such as {spec.region}, no zone, or a multi-region or dual-region such as us or nam4",
            )
        key = spec.bucket(name).kms_key
        key_location = key.split("/")[3].lower() if key else location
        if key_location != location:
            yield error(
                where,
                f"a key in {key_location} for a bucket in {location}",
                "a key in the location of the bucket: Cloud Storage takes no other",
            )


def bucket_names(spec: ClusterSpec) -> list[str]:
    """Return the buckets of a cluster file, each once: those of backups first, then the one for scratch files."""
    names = [each.bucket for each in spec.checkpoint_configurations.values()]
    return list(dict.fromkeys([*names, *([spec.scratch_bucket] if spec.scratch_bucket else [])]))


def is_for_backups(spec: ClusterSpec, bucket: str) -> bool:
    """Say whether a bucket takes backups, and so has to be hierarchical."""
    return any(each.bucket == bucket for each in spec.checkpoint_configurations.values())


def bucket_project(spec: ClusterSpec, bucket: str) -> str:
    """Return the project of a bucket."""
    return spec.bucket(bucket).project or spec.project
