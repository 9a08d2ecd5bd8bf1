"""The checkpoint driver: one ready pod on each accelerator node, which may read and write the bucket. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from everstep.clients.resources import CHECKPOINTING_NAMESPACE
from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.evidence import Object
from everstep.doctor.rules import images
from everstep.spec.findings import Severity

# Mounts are tried again and again; a driver that has just been made needs a while.
GRACE_SECONDS = 120.0

# What Cloud Storage FUSE says when the token is good and the permission is missing …
DENIED = re.compile(
    r"storage\.(objects|folders|buckets)\.\w+|PermissionDenied|Error 403|does not have .* access", re.IGNORECASE
)
# … when no token could be had at all …
NO_TOKEN = re.compile(
    r"unable to generate access token|getAccessToken|generateAccessToken|metadata server|failed to (get|fetch|prepare)"
    r" .*token|token source|invalid_target|identity ?pool .*(not exist|not found|invalid)|sts\.googleapis|"
    r"could not find default credentials|Unauthenticated",
    re.IGNORECASE,
)
# … and when there is no such bucket.
NO_BUCKET = re.compile(r"bucket[^.]{0,60}(does not exist|doesn't exist|not found|notfound)|NoSuchBucket", re.IGNORECASE)

SYMPTOMS = (
    Symptom(
        "driver-token",
        "the driver gets no token",
        ("driver-not-ready", "volume-not-mounted", "driver-denied"),
    ),
    Symptom(
        "driver-denied",
        "the driver may not use the bucket",
        ("driver-unbound", "driver-not-ready", "volume-not-mounted"),
    ),
    Symptom("driver-pending", "a driver pod has no node", ("driver-not-ready", "configuration-conflict")),
    Symptom("driver-missing", "a node has no driver", ("volume-not-mounted",)),
    Symptom("driver-not-ready", "a driver pod is not ready", ("volume-not-mounted",)),
)


def mounts(case: Case) -> Iterator[Diagnosis]:
    """Which driver pods can't mount the bucket, and why? The two kinds of text lead to different advice."""
    said: dict[tuple[str, str], list[Object]] = defaultdict(list)
    unready = {objects.name(pod): pod for pod in case.evidence.all("driver-pods") if not objects.is_true(pod, "Ready")}
    for event in case.evidence.all("driver-events"):
        pod = unready.get(objects.about(event)[1])
        if pod is None or event.get("reason") not in ("FailedMount", "Failed", "BackOff", "FailedCreatePodSandBox"):
            continue
        kind = kind_of_refusal(str(event.get("message", "")))
        if kind:
            said[kind, bucket_of(case, pod, str(event.get("message", "")))].append(event)
    for (kind, bucket), events in said.items():
        pods = sorted({objects.about(event)[1] for event in events})
        where = f"{len(pods)} driver pod{'s' if len(pods) > 1 else ''} ({', '.join(pods[:2])}{', …' * (len(pods) > 2)})"
        quotes = tuple(objects.told(events))
        if kind == "driver-denied":
            yield denied(case, where, bucket, quotes)
        elif kind == "driver-token":
            yield _no_token(case, where, quotes)
        else:
            yield Diagnosis(
                "bucket-missing",
                f"bucket {bucket}",
                f"there is no such bucket, so {where} wait in Init for ever",
                quotes,
                ("everstep provision CLUSTER_FILE --mode apply   # makes it, hierarchical as it has to be",),
            )


def missing(case: Case) -> Iterator[Diagnosis]:
    """Has each node that a configuration selects a driver pod?"""
    if not case.evidence.saw("nodes", "driver-pods", "configurations", "daemonsets"):
        return
    sets = {objects.name(each): each for each in case.evidence.all("daemonsets")}
    for configuration in case.evidence.all("configurations"):
        driver = sets.get(f"multitier-driver-{configuration['metadata'].get('uid')}")
        if driver is None or configuration["metadata"].get("deletionTimestamp"):
            continue
        served = {
            (pod.get("spec") or {}).get("nodeName") or _pinned_to(pod)
            for pod in case.evidence.all("driver-pods")
            if objects.name(pod).startswith(f"{objects.name(driver)}-")
        }
        selector = (configuration.get("spec") or {}).get("nodeSelector") or {}
        bare = [
            node for node in case.nodes.values() if objects.chosen(selector, node) if objects.name(node) not in served
        ]
        tolerations = (((driver.get("spec") or {}).get("template") or {}).get("spec") or {}).get("tolerations") or []
        for node in bare:
            taints = [
                taint
                for taint in (node.get("spec") or {}).get("taints") or []
                if taint.get("effect") in ("NoSchedule", "NoExecute")
                and not str(taint.get("key", "")).startswith("node.kubernetes.io/")
                and not objects.tolerated(taint, tolerations)
            ]
            yield _missing_on(case, configuration, node, taints)


def pending(case: Case) -> Iterator[Diagnosis]:
    """Which driver pods have no node? One of them keeps the controller from serving any new configuration."""
    for pod in case.evidence.all("driver-pods"):
        scheduled = objects.condition(pod, "PodScheduled")
        if (pod.get("spec") or {}).get("nodeName") or str(scheduled.get("status")) != "False":
            continue
        yield Diagnosis(
            "driver-pending",
            f"pod {objects.full_name(pod)}",
            "this driver pod finds no place on its node, and while that is so the controller serves no new "
            "CheckpointConfiguration",
            (quote(scheduled.get("message", "")),),
            (
                f"kubectl describe pod -n {CHECKPOINTING_NAMESPACE} {objects.name(pod)}",
                "free memory on that node, or give the RAM disk (in_memory_volume_size) less",
            ),
        )


def not_ready(case: Case) -> Iterator[Diagnosis]:
    """Which driver pods are not ready although they have a node, and nothing else says why?"""
    waiting = []
    for pod in case.evidence.all("driver-pods"):
        age = objects.seconds_since(pod["metadata"].get("creationTimestamp"), case.now) or 0.0
        placed = bool((pod.get("spec") or {}).get("nodeName"))
        if placed and not objects.is_true(pod, "Ready") and age >= GRACE_SECONDS and not images.is_stuck(pod):
            waiting.append(pod)
    if not waiting:
        return
    quotes = []
    for pod in waiting[:3]:
        states = []
        for container, state, _ in objects.container_states(pod):
            halted = state.get("waiting") or state.get("terminated") or {}
            if halted:
                states.append(f"{container}: {halted.get('reason')}")
        quotes.append(
            quote(f"pod {objects.name(pod)} on {pod['spec']['nodeName']}: {', '.join(states) or 'not Ready'}")
        )
    names = {objects.name(pod) for pod in waiting}
    events = [each for each in case.evidence.all("driver-events") if objects.about(each)[1] in names]
    yield Diagnosis(
        "driver-not-ready",
        f"{len(waiting)} of {len(case.evidence.all('driver-pods'))} driver pods",
        "they are not ready, so pods with a checkpoint volume on their nodes wait",
        (*quotes, *list(objects.told(events))[:3]),
        (
            f"kubectl describe pod -n {CHECKPOINTING_NAMESPACE} {objects.name(waiting[0])}",
            f"kubectl logs -n {CHECKPOINTING_NAMESPACE} {objects.name(waiting[0])} --all-containers --tail=50",
        ),
        severity=Severity.ERROR,
        confidence=Confidence.CERTAIN if case.evidence.saw("driver-events") else Confidence.POSSIBLE,
    )


RULES = (mounts, missing, pending, not_ready)


def kind_of_refusal(text: str) -> str:
    """Return the symptom that a driver's text about the bucket stands for; empty when it is about something else."""
    if NO_TOKEN.search(text):
        return "driver-token"
    if NO_BUCKET.search(text):
        return "bucket-missing"
    return "driver-denied" if DENIED.search(text) else ""


def bucket_of(case: Case, pod: Object, text: str) -> str:
    """Return the bucket that a driver pod's refusal is about."""
    for configuration in case.evidence.all("configurations"):
        if str(configuration["metadata"].get("uid")) in objects.name(pod):
            found = (configuration.get("spec") or {}).get("cloudStorageBucketName")
            if found:
                return str(found)
    return next((one for one in case.target.buckets if one in text), case.target.bucket or "BUCKET")


def denied(case: Case, where: str, bucket: str, quotes: tuple[str, ...]) -> Diagnosis:
    """Return the diagnosis of a driver without rights on its bucket."""
    number = "number of the project and its id in the right places"
    return Diagnosis(
        "driver-denied",
        where,
        f"the driver may not use bucket {bucket}: {case.principal} lacks roles/storage.objectUser there",
        quotes,
        (
            *case.number_first(),
            f"{case.grant_driver(bucket)}{'' if case.project_number else f'   # with the {number}'}",
        ),
    )


def _no_token(case: Case, where: str, quotes: tuple[str, ...]) -> Diagnosis:
    target = case.target
    return Diagnosis(
        "driver-token",
        where,
        "the driver gets no token at all, so rights on the bucket are not the matter: Workload Identity is off, the "
        "node pool lacks the GKE metadata server, or the pool's service account was tampered with",
        quotes,
        (
            f"gcloud container clusters describe {target.gcloud_cluster} --format='value(workloadIdentityConfig)'",
            f"gcloud container node-pools list --cluster={target.gcloud_cluster} "
            "--format='table(name,config.workloadMetadataConfig.mode)'   # has to be GKE_METADATA",
            f"gcloud container node-pools update POOL --cluster={target.gcloud_cluster} "
            "--workload-metadata=GKE_METADATA   # makes the pool's nodes anew",
        ),
    )


def _missing_on(case: Case, configuration: Object, node: Object, taints: list[Object]) -> Diagnosis:
    name = objects.name(configuration)
    if taints:
        spelt = ", ".join(f"{one.get('key')}={one.get('value', '')}:{one.get('effect')}" for one in taints)
        cause = f"it has no driver, because the configuration {name} does not tolerate its taint {spelt}"
        remedy: tuple[str, ...] = (
            f"add a toleration for {taints[0].get('key')} to the configuration (tolerations in the cluster file), then "
            "make it anew, which wipes the RAM disks: everstep provision CLUSTER_FILE --mode apply --recreate",
        )
        sure = Confidence.CERTAIN
    else:
        cause = f"it has no driver of the configuration {name}"
        remedy = (f"kubectl describe daemonset -n {CHECKPOINTING_NAMESPACE}",)
        sure = Confidence.LIKELY
    age = objects.seconds_since(node["metadata"].get("creationTimestamp"), case.now)
    return Diagnosis(
        "driver-missing",
        f"node {objects.name(node)}",
        cause,
        (quote(f"node is {objects.spell(age or 0)} old; nodeSelector {configuration['spec'].get('nodeSelector')}"),),
        remedy,
        severity=Severity.ERROR if taints or (age or 0) > GRACE_SECONDS else Severity.NOTE,
        confidence=sure,
    )


def _pinned_to(pod: Object) -> str:
    """Return the node that a DaemonSet's pod is meant for while it is not scheduled."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""
