"""Preflight's look at the bucket itself."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.clients.errors import Forbidden, NotFound
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import SERVICE_ACCOUNTS
from everstep.clients.storage import BucketClient
from everstep.provision.cloud import checks, gcloud, run_access
from everstep.provision.cloud.run_access import Pods
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


def access(bucket: BucketClient, cluster: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """May the run's pods use the run's folder, where the bucket's policy lets pods in run by run?

    Elsewhere a role on the project may do so, which this identity need not see. Who may not read the policy is told
    nothing.
    """
    place, account = spec.cluster_spec, spec.trainer.service_account or "default"
    try:
        policy = bucket.policy()
        found = cluster.find(SERVICE_ACCOUNTS, account, place.namespace)
    except Forbidden:
        return
    if run_access.acts_as_another(found):
        return
    pods = Pods(place.project, place.name, place.namespace, account)
    lacking = run_access.lacking(policy, pods, bucket.name, spec.name)
    if lacking and run_access.is_by_run(policy):
        by_file, *commands = run_access.remedies(bucket.name, spec.name, lacking)
        yield warning(
            f"gs://{bucket.name}/{spec.name}/",
            f"the bucket's policy lets pods in run by run, and this run's, {pods.principal(policy)}, not at all",
            "roles for this run, unless a role on the project lets its pods in: without any they can neither report "
            "nor save, and fail at every restart",
            f"{by_file}; or by hand: {' && '.join(commands)}",
        )
