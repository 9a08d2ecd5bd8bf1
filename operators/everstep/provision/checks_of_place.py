"""Preflight's looks at what a run finds in its namespace, and at the way to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from everstep.clients.errors import Forbidden
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from everstep.provision.cloud.reachability import reachability
from everstep.spec.findings import Finding, error, note, warning
from everstep.spec.quantities import as_quantity, quantity_value
from everstep.spec.training import TrainingSpec

if TYPE_CHECKING:
    from everstep.clients.google import GoogleCloud


def endpoint(open_google: Callable[[], GoogleCloud] | None, spec: TrainingSpec) -> Iterator[Finding]:
    """Does GKE offer the endpoint that the cluster file names, and to whom?"""
    if open_google is None:
        return
    place = spec.cluster_spec
    with open_google() as google:
        cluster = google.cluster(place.project, place.location, place.name)
    if cluster is None:
        yield error(
            f"cluster {place.name}",
            f"GKE has none of that name in {place.project}, {place.location}",
            "the cluster of the cluster file",
            f"gcloud container clusters list --project={place.project}",
        )
        return
    yield from reachability(cluster, place)


def service_account(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the pods' service account there? Without it no pod is made, and only an event says so."""
    name = spec.trainer.service_account
    if name is not None and client.find(SERVICE_ACCOUNTS, name, spec.cluster_spec.namespace) is None:
        yield error(
            f"ServiceAccount {spec.cluster_spec.namespace}/{name}",
            "not there",
            "one that may write the run's folder",
            f"kubectl create serviceaccount {name} -n {spec.cluster_spec.namespace}, and grant it the bucket",
        )


def pull_secrets(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Are the secrets there by which the pods' service account pulls images? Without them a pull is refused."""
    namespace, account = spec.cluster_spec.namespace, spec.trainer.service_account or "default"
    found = client.find(SERVICE_ACCOUNTS, account, namespace) or {}
    for each in found.get("imagePullSecrets") or ():
        where = f"Secret {namespace}/{each['name']}"
        try:
            if client.find(SECRETS, each["name"], namespace) is None:
                yield error(
                    where,
                    f"not there, though ServiceAccount {account} pulls images with it",
                    "a secret of type kubernetes.io/dockerconfigjson",
                    f"kubectl create secret docker-registry {each['name']} -n {namespace} …, or take it off the "
                    "account's imagePullSecrets",
                )
        except Forbidden:
            yield note(
                where,
                f"not looked at: ServiceAccount {account} pulls images with it, and the launcher reads no secrets",
                "that it is there",
                f"kubectl get secret {each['name']} -n {namespace}",
            )


def queue(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Is the queue of the cluster file there?"""
    name = spec.cluster_spec.queue
    found = None if name is None else client.find(LOCAL_QUEUES, name, spec.cluster_spec.namespace)
    if name is not None and found is None:
        yield error(
            f"LocalQueue {spec.cluster_spec.namespace}/{name}",
            "not there",
            "the queue that the cluster file names",
            "make the queue, or set queue: null in the cluster file",
        )
        return
    if found is None:
        return
    yield from _activity(
        found,
        f"LocalQueue {spec.cluster_spec.namespace}/{name}",
        f"kubectl describe localqueue {name} -n {spec.cluster_spec.namespace}",
    )
    behind = str((found.get("spec") or {}).get("clusterQueue") or "")
    where, cluster_queue = f"ClusterQueue {behind}", client.find(CLUSTER_QUEUES, behind) if behind else None
    if cluster_queue is None:
        yield error(
            where,
            f"not there, though LocalQueue {name} leads to it",
            "a ClusterQueue: nothing is ever admitted without one",
            f"kubectl get clusterqueues, then correct clusterQueue of localqueue {name}",
        )
        return
    yield from _activity(cluster_queue, where, f"kubectl describe clusterqueue {behind}")


def _activity(queue: Mapping[str, Any], where: str, look: str) -> Iterator[Finding]:
    conditions = (queue.get("status") or {}).get("conditions") or ()
    inactive = next((each for each in conditions if each["type"] == "Active" and each["status"] != "True"), None)
    if inactive is not None:
        told = f"not active: {inactive.get('message') or inactive.get('reason')}"
        yield error(where, told, "an active queue: nothing in it is ever admitted", look)


def quota(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Would a ResourceQuota refuse the run's pods? Only an event would say so."""
    namespace = spec.cluster_spec.namespace
    needed: dict[str, Decimal] = {"pods": Decimal(spec.nodes), "count/pods": Decimal(spec.nodes)}
    needed[f"requests.{spec.pool.resource}"] = Decimal(spec.nodes * spec.pool.chips_per_node)
    for key, asked in (("cpu", spec.trainer.resources.cpu), ("memory", spec.trainer.resources.memory)):
        if asked is not None:
            value = quantity_value(as_quantity(asked) if key == "memory" else asked) or Decimal(0)
            needed[key] = needed[f"requests.{key}"] = value * spec.nodes
    for each in client.list_all(RESOURCE_QUOTAS, namespace):
        body = each.get("spec") or {}
        if body.get("scopes") or body.get("scopeSelector"):
            continue
        used = (each.get("status") or {}).get("used") or {}
        for key, limit in (body.get("hard") or {}).items():
            most, taken = quantity_value(limit), quantity_value(used.get(key, 0)) or Decimal(0)
            if most is None or key not in needed:
                continue
            if needed[key] + taken > most:
                tell = error if needed[key] > most else warning
                yield tell(
                    f"ResourceQuota {namespace}/{each['metadata']['name']}",
                    f"{key}: {limit} at most, {used.get(key, 0)} used, {needed[key]} needed by the run",
                    "room for all pods of the run, or they are never made",
                    f"kubectl edit resourcequota {each['metadata']['name']} -n {namespace}, or ask for fewer slices",
                )
