"""Reads evidence from a live cluster, Google Cloud and the bucket, with blocking clients. Changes nothing.

Every source is bounded in number and in time. A source that can't be read, is refused or comes too late is noted and
the others go on, so that a doctor with few rights still sees what it may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everstep.clients import resources
from everstep.clients.errors import NotFound, RemoteError, Unavailable
from everstep.clients.resources import (
    CHECKPOINT_DEFINITION,
    CHECKPOINTING_NAMESPACE,
    JOBSET_DEFINITION,
    JOBSET_NAMESPACE,
    Resource,
)
from everstep.doctor import objects
from everstep.doctor.evidence import TRUSTED, Evidence, Object, Target
from everstep.doctor.folder import read_folder
from everstep.doctor.rules.replicator import DRIVER_CONTAINER
from everstep.launch import labels
from everstep.provision.cloud.endpoints import is_trusted

if TYPE_CHECKING:
    from everstep.clients.google import GoogleCloud
    from everstep.clients.kubernetes import KubernetesClient
    from everstep.clients.storage import BucketClient

MOST_OBJECTS = 2000
MOST_EVENTS = 1000
MOST_LOGS = 4
LOG_LINES = 200
DRIVER_LABELS = "k8s-app=high-scale-checkpointing"
OPERATIONS_KEPT = 50
# What GKE tells of a cluster's login and certificates is of no use here.
_CLUSTER_FIELDS_LEFT_OUT = ("masterAuth",)


@dataclass
class Sources:
    """Where evidence is read. What is None is not read.

    :param bucket: opens a client of a bucket
    :param why: why a source is None, by `cluster`, `google` or `bucket`
    """

    cluster: KubernetesClient | None = None
    google: GoogleCloud | None = None
    bucket: Callable[[str], BucketClient] | None = None
    why: dict[str, str] = field(default_factory=dict)


def gather(target: Target, sources: Sources, *, seconds: float = 120.0, log_lines: int = LOG_LINES) -> Evidence:
    """Read everything that a diagnosis may need. Never raises for what can't be read.

    :param seconds: after that no further source is asked
    :param log_lines: ends of logs; 0 reads none
    """
    evidence = Evidence(target)
    deadline = time.monotonic() + seconds
    for kind, read in _plan(evidence, sources):
        if time.monotonic() > deadline:
            evidence.unread[kind] = f"no time was left after {seconds:.0f} s"
            continue
        _take(evidence, kind, read)
    if log_lines and sources.cluster is not None:
        for namespace, pod, container in _logs_to_read(evidence):
            place = f"{namespace}/{pod}/{container}"
            if time.monotonic() > deadline:
                evidence.unread[f"log of {place}"] = f"no time was left after {seconds:.0f} s"
                continue
            try:
                evidence.logs[place] = sources.cluster.log(pod, namespace, container=container, lines=log_lines)
            except RemoteError as failure:
                evidence.unread[f"log of {place}"] = failure.message
    return evidence


Read = Callable[[], list[Object]]


def _take(evidence: Evidence, kind: str, read: Read) -> None:
    try:
        evidence.objects[kind] = read()
    except RemoteError as failure:
        evidence.unread[kind] = failure.message


def _plan(evidence: Evidence, sources: Sources) -> Iterator[tuple[str, Read]]:
    """Yield what is read, in order: later ones may look at what earlier ones found."""
    target = evidence.target
    if sources.cluster is not None:
        yield from _cluster_plan(evidence, sources.cluster)
    else:
        evidence.unread["version"] = sources.why.get("cluster", "no way to the cluster was given")
    if sources.google is not None and target.project:
        yield from _google_plan(target, sources.google, sources.cluster)
    else:
        evidence.unread["cluster"] = sources.why.get("google", "no way to Google Cloud's APIs was given")
    if sources.bucket is not None and target.buckets:
        yield from _bucket_plan(target, sources.bucket)
    else:
        evidence.unread["buckets"] = sources.why.get("bucket", "no bucket is known")


def _cluster_plan(evidence: Evidence, client: KubernetesClient) -> Iterator[tuple[str, Read]]:
    target = evidence.target
    namespace, run = target.namespace, target.run

    def every(resource: Resource, where: str | None = None, labels: str = "", fields: str = "") -> Read:
        most = MOST_EVENTS if resource is resources.EVENTS else MOST_OBJECTS
        return lambda: _known(lambda: client.list_most(resource, where, labels=labels, fields=fields, most=most))

    def one(resource: Resource, name: str, where: str | None = None) -> Read:
        return lambda: _present(client.find(resource, name, where))

    definitions = (CHECKPOINT_DEFINITION, JOBSET_DEFINITION)
    yield "version", lambda: [{"gitVersion": client.version(), "server": client.server().url}]
    if "version" in evidence.unread:
        # Who does not answer once is not waited for twenty times.
        return
    yield (
        "definitions",
        lambda: [
            _brief(found)
            for name in definitions
            if (found := client.find(resources.CUSTOM_RESOURCE_DEFINITIONS, name)) is not None
        ],
    )
    yield "configurations", every(resources.CHECKPOINT_CONFIGURATIONS)
    yield (
        "configuration-events",
        every(resources.EVENTS, "default", fields="involvedObject.kind=CheckpointConfiguration"),
    )
    yield "daemonsets", every(resources.DAEMON_SETS, CHECKPOINTING_NAMESPACE)
    yield "driver-pods", every(resources.PODS, CHECKPOINTING_NAMESPACE, DRIVER_LABELS)
    yield "driver-events", every(resources.EVENTS, CHECKPOINTING_NAMESPACE, fields="type=Warning")
    yield "deployments", every(resources.DEPLOYMENTS, JOBSET_NAMESPACE)
    yield "controller-pods", every(resources.PODS, JOBSET_NAMESPACE)
    yield "nodes", every(resources.NODES)
    yield "priority-classes", every(resources.PRIORITY_CLASSES)
    if not run:
        return
    own = f"{labels.JOBSET_NAME}={run}"
    yield "jobsets", one(resources.JOBSETS, run, namespace)
    account = objects.service_account(evidence.one("jobsets"))
    if account:
        yield "service-account", one(resources.SERVICE_ACCOUNTS, account, namespace)
    yield "jobs", every(resources.JOBS, namespace, own)
    yield "pods", every(resources.PODS, namespace, own)
    yield "events", lambda: _of_run(every(resources.EVENTS, namespace, fields="type=Warning")(), run)
    yield "quotas", every(resources.RESOURCE_QUOTAS, namespace)
    if target.queue:
        yield "local-queue", one(resources.LOCAL_QUEUES, target.queue, namespace)
        yield "cluster-queue", lambda: _cluster_queue(evidence, client)
        yield (
            "workloads",
            lambda: [each for each in every(resources.WORKLOADS, namespace)() if _owned_by(each, run)],
        )


def _google_plan(target: Target, google: GoogleCloud, client: KubernetesClient | None) -> Iterator[tuple[str, Read]]:
    silent: list[Unavailable] = []

    def cluster() -> list[Object]:
        try:
            found = google.cluster(target.project, target.location, target.cluster)
        except Unavailable as failure:
            silent.append(failure)
            raise
        if found is None:
            return []
        kept = {key: value for key, value in found.items() if key not in _CLUSTER_FIELDS_LEFT_OUT}
        return [{**kept, TRUSTED: _trusts(client, found)}]

    def operations() -> list[Object]:
        found = google.operations(target.project, target.location)
        ours = [each for each in found if f"/clusters/{target.cluster}" in str(each.get("targetLink", ""))]
        return sorted(ours, key=lambda each: str(each.get("startTime", "")))[-OPERATIONS_KEPT:]

    yield "cluster", cluster
    if silent:
        # Who does not answer once is not waited for again.
        return
    yield "project", lambda: [{"projectId": target.project, "projectNumber": google.project_number(target.project)}]
    yield "operations", operations


def _bucket_plan(target: Target, bucket: Callable[[str], BucketClient]) -> Iterator[tuple[str, Read]]:
    def metadata(name: str) -> Object:
        try:
            return bucket(name).metadata()
        except NotFound as failure:
            return {"name": name, "missing": failure.message}

    def policies() -> list[Object]:
        found = []
        for name in target.buckets:
            try:
                found.append({"name": name, **bucket(name).policy()})
            except NotFound:
                continue
        return found

    yield "buckets", lambda: [metadata(name) for name in target.buckets]
    yield "bucket-policies", policies
    if target.run and target.bucket:
        read: list[tuple[list[Object], list[Object]]] = []

        def folder() -> list[Object]:
            read.append(read_folder(bucket(target.bucket), target))
            return read[0][0]

        yield "run-folder", folder
        yield "attempts", lambda: read[0][1] if read else []


def _logs_to_read(evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """Yield the few containers whose last words say most: failed pods first, then drivers that are not well."""
    pods = [pod for pod in evidence.all("pods") if (pod.get("status") or {}).get("phase") in ("Failed", "Running")]
    pods.sort(key=lambda pod: ((pod.get("status") or {}).get("phase") != "Failed", objects.name(pod)))
    for pod in pods[:MOST_LOGS]:
        containers = [str(each.get("name")) for each in (pod.get("spec") or {}).get("containers") or []]
        trainer = labels.TRAINER_CONTAINER if labels.TRAINER_CONTAINER in containers else (containers or [""])[0]
        if trainer:
            yield str(pod["metadata"].get("namespace")), objects.name(pod), trainer
    used = {(pod.get("spec") or {}).get("nodeName") for pod in pods}
    drivers = [
        pod for pod in evidence.all("driver-pods") if not used or (pod.get("spec") or {}).get("nodeName") in used
    ]
    drivers.sort(key=lambda pod: (objects.is_true(pod, "Ready"), objects.name(pod)))
    for pod in drivers[:MOST_LOGS]:
        states = {container: state for container, state, _ in objects.container_states(pod)}
        if "waiting" not in states.get(DRIVER_CONTAINER, {"waiting": {}}):
            yield CHECKPOINTING_NAMESPACE, objects.name(pod), DRIVER_CONTAINER


def _trusts(client: KubernetesClient | None, cluster: Object) -> bool:
    """Say whether the client takes only an answer that the cluster's own authority vouches for."""
    try:
        return client is not None and is_trusted(client.server(), cluster)
    except RemoteError:
        return False


def _known(read: Read) -> list[Object]:
    """Return what is read; none where the kind itself is not there, which `definitions` tells."""
    try:
        return read()
    except NotFound:
        return []


def _present(found: Object | None) -> list[Object]:
    return [] if found is None else [found]


def _brief(definition: Object) -> Object:
    """Return of a CustomResourceDefinition what matters: its schema is large."""
    spec = definition.get("spec") or {}
    versions = [{key: each.get(key) for key in ("name", "served", "storage")} for each in spec.get("versions") or []]
    return {
        "metadata": {"name": objects.name(definition)},
        "spec": {"group": spec.get("group"), "names": spec.get("names"), "versions": versions},
        "status": {"conditions": (definition.get("status") or {}).get("conditions") or []},
    }


def _of_run(events: Sequence[Object], run: str) -> list[Object]:
    """Return the events about a run's JobSet, Jobs and pods."""
    return [each for each in events if (named := objects.about(each)[1]) == run or named.startswith(f"{run}-")]


def _cluster_queue(evidence: Evidence, client: KubernetesClient) -> list[Object]:
    local: dict[str, Any] = evidence.one("local-queue") or {}
    name = (local.get("spec") or {}).get("clusterQueue")
    return _present(client.find(resources.CLUSTER_QUEUES, name)) if name else []


def _owned_by(workload: Object, run: str) -> bool:
    owners = workload["metadata"].get("ownerReferences") or []
    return any(owner.get("kind") == "JobSet" and owner.get("name") == run for owner in owners)
