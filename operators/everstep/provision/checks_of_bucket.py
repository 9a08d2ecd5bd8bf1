"""Preflight's look at the bucket itself."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.clients.errors import NotFound
from everstep.clients.storage import BucketClient
from everstep.provision.cloud import checks, gcloud
from everstep.spec.findings import Finding, error, note, warning
from everstep.spec.training import TrainingSpec

NO_BUCKET = "no such bucket"


def bucket(client: BucketClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the bucket there, near the cluster, and with the hierarchical namespace that the replicator needs?"""
    where, region = f"gs://{client.name}", spec.cluster_spec.region
    try:
        found = client.metadata()
    except NotFound:
        yield error(
            where,
            NO_BUCKET,
            "the bucket of the checkpoint configuration",
            f"gcloud storage buckets create {where} --location={region} --enable-hierarchical-namespace "
            "--uniform-bucket-level-access",
        )
        return
    if not (found.get("hierarchicalNamespace") or {}).get("enabled"):
        yield error(
            where,
            "no hierarchical namespace",
            "one, because backups become whole by renaming folders",
            "make a new bucket: an existing one can't be given it",
        )
    location, data_locations = checks.location_of(found)
    if location and not checks.is_near(location, region, data_locations):
        yield warning(where, f"location {location} for a cluster in {region}", checks.EGRESS)
    days = checks.soft_delete_days(found)
    if days:
        yield note(
            where,
            checks.cost_of_soft_delete(days),
            "off, where retention keeps its own trash",
            gcloud.soft_delete(client.name, 0),
        )
