"""Pods that are not made, find no node, or wait for their volume. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.evidence import Object
from everstep.launch import labels
from everstep.spec.findings import Severity
from everstep.watch import pending
from everstep.watch import pods as pod_states

# A pod that was just made is often unschedulable for a moment, and followers wait for their leader's node.
GRACE_SECONDS = 20.0
VOLUME_GRACE_SECONDS = 60.0

SYMPTOMS = (
    Symptom("pods-refused-account", "pods can't be made: their ServiceAccount is missing", ("run-not-started",)),
    Symptom("pods-refused-priority", "pods can't be made: their PriorityClass is missing", ("run-not-started",)),
    Symptom("pods-refused-quota", "pods can't be made: a ResourceQuota is used up", ("run-not-started",)),
    Symptom("pods-refused-webhook", "pods can't be made: an admission webhook refuses them", ("run-not-started",)),
    Symptom("pods-refused", "pods can't be made", ("run-not-started",)),
    Symptom("slice-missing", "there are too few whole slices", ("pods-pending", "run-not-started")),
    Symptom("pods-pending", "pods find no node", ("pods-refused-webhook", "run-not-started")),
    Symptom("volume-not-mounted", "pods wait for their volume", ("run-not-started",)),
)

_REFUSALS = (
    (re.compile(r"serviceaccount \"?(?P<name>[^\" ]+)\"? not found|service account \S+ was not found"), "account"),
    (re.compile(r"no PriorityClass with name (?P<name>\S+) was found"), "priority"),
    (re.compile(r"exceeded quota|failed quota"), "quota"),
    (re.compile(r"admission webhook|failed calling webhook", re.IGNORECASE), "webhook"),
)


def refused(case: Case) -> Iterator[Diagnosis]:
    """Are pods of the run refused, and by whom? Only events say so; the Job's status stays empty."""
    run = case.target.run
    # A leader that failed may be kept beside its successor: both are one and the same worker.
    made = len({(pod.slice, pod.index) for pod in map(pod_states.of_pod, case.pods)})
    if not run or (case.target.nodes and made >= case.target.nodes):
        return
    for text in pending.refusals(case.evidence.all("events"), run):
        kind, named = "", ""
        for pattern, one in _REFUSALS:
            match = pattern.search(text)
            if match:
                kind, named = one, match.groupdict().get("name") or ""
                break
        yield _refusal(case, kind, named.strip('"'), text, made)
        if made == 0:
            # Older refusals were overcome, or are the same trouble in other words.
            return


def unschedulable(case: Case) -> Iterator[Diagnosis]:
    """Which pods find no node, and which slice is it that is not whole?"""
    waiting = [
        pod
        for pod in case.pods
        if not (pod.get("spec") or {}).get("nodeName")
        and str(objects.condition(pod, "PodScheduled").get("status")) == "False"
        and (objects.seconds_since(pod["metadata"].get("creationTimestamp"), case.now) or 0) >= GRACE_SECONDS
    ]
    if not waiting:
        return
    expected = case.target.nodes or len(case.pods)
    placed = len([pod for pod in case.pods if (pod.get("spec") or {}).get("nodeName")])
    states = [pod_states.of_pod(pod) for pod in waiting]
    slices = sorted({state.slice for state in states})
    reasons = [quote(line) for line in pending.explain(states, (), case.target.run, expected)]
    yield Diagnosis(
        "pods-pending",
        f"{len(waiting)} of {expected} pods of run {case.target.run}",
        f"{placed} of {expected} are placed; slice{'s' if len(slices) > 1 else ''} "
        f"{', '.join(map(str, slices))} find{'' if len(slices) > 1 else 's'} no nodes",
        (*reasons, *_why_nodes_are_out(case)),
        (
            f"kubectl get nodes -l {_selector(case)} -L {labels.NODE_POOL}",
            "free a slice, enlarge or repair the node pools, or lower slices.count in the run file",
        ),
        confidence=Confidence.CERTAIN if case.evidence.saw("nodes") else Confidence.LIKELY,
    )


def slices(case: Case) -> Iterator[Diagnosis]:
    """Are there as many whole slices as the run wants? Says of each that is not whole what is the matter."""
    target = case.target
    if not (target.run and target.nodes and target.pool and case.evidence.saw("nodes")):
        return
    if not any(not (pod.get("spec") or {}).get("nodeName") for pod in case.pods):
        return
    whole, broken = _pools(case)
    if len(whole) >= target.slices:
        return
    short = target.slices - len(whole)
    yield Diagnosis(
        "slice-missing",
        f"pool of run {target.run}",
        f"{target.slices} slices of {target.nodes_per_slice} nodes are wanted and {len(whole)} are whole: "
        f"{short} {'is' if short == 1 else 'are'} missing",
        tuple(quote(f"node pool {name}: {why}") for name, why in sorted(broken.items()))
        or (f"no other node pool has the labels {dict(target.pool)}",),
        (
            f"gcloud container node-pools list --cluster={target.gcloud_cluster}",
            *(
                f"gcloud container clusters resize {target.gcloud_cluster} --node-pool={name} "
                f"--num-nodes={target.nodes_per_slice}"
                for name in sorted(broken)[:1]
            ),
        ),
        severity=Severity.ERROR,
    )


def volumes(case: Case) -> Iterator[Diagnosis]:
    """Which pods have a node and wait for a volume?"""
    waiting = {
        objects.name(pod): pod
        for pod in case.pods
        if (pod.get("spec") or {}).get("nodeName")
        and (pod.get("status") or {}).get("phase") == "Pending"
        and (objects.seconds_since(pod["metadata"].get("creationTimestamp"), case.now) or 0) >= VOLUME_GRACE_SECONDS
    }
    said = [
        event
        for event in case.evidence.all("events")
        if event.get("reason") in ("FailedMount", "FailedAttachVolume") and objects.about(event)[1] in waiting
    ]
    if not said:
        return
    nodes = sorted({str(waiting[objects.about(event)[1]]["spec"]["nodeName"]) for event in said})
    text = " ".join(str(event.get("message")) for event in said)
    unregistered = labels.CHECKPOINT_DRIVER in text and "not found in the list of registered" in text
    yield Diagnosis(
        "volume-not-mounted",
        f"{len(waiting)} pods of run {case.target.run} on {', '.join(nodes[:3])}",
        "the checkpoint driver is not on their nodes, so their RAM disk can't be mounted"
        if unregistered
        else "their volumes can't be mounted",
        tuple(objects.told(said)),
        (
            f"kubectl get pods -n gke-managed-checkpointing -o wide --field-selector spec.nodeName={nodes[0]}",
            f"kubectl describe pod -n {case.target.namespace} {sorted(waiting)[0]}",
        ),
    )


RULES = (refused, slices, unschedulable, volumes)


def _refusal(case: Case, kind: str, named: str, text: str, made: int) -> Diagnosis:
    target = case.target
    namespace = target.namespace
    where = f"pods of run {target.run}"
    count = f" ({made} of {target.nodes} are there)" if made and target.nodes else ""
    quotes: tuple[str, ...] = (quote(f"FailedCreate: {text}"),)
    if kind == "account":
        name = named.rpartition("/")[2] or "NAME"
        cause = f"their ServiceAccount {namespace}/{name} is not there, so none can be made{count}"
        remedy: tuple[str, ...] = (
            f"kubectl create serviceaccount {name} -n {namespace}",
            "everstep provision CLUSTER_FILE --mode apply   # gives it the run's folder in the bucket",
        )
    elif kind == "priority":
        name = named or target.priority or "NAME"
        cause = f"their PriorityClass {name} is not there, so none can be made{count}"
        remedy = (f"kubectl create priorityclass {name} --value={target.priorities.get(name, 'VALUE')}",)
    elif kind == "quota":
        cause = f"a ResourceQuota of namespace {namespace} is used up{count}"
        remedy = (f"kubectl describe resourcequota -n {namespace}   # raise it, or end what uses it",)
        quotes += tuple(_quotas(case))
    elif kind == "webhook" and re.search(r"leader|follower", text):
        cause = (
            "JobSet's webhook refuses the followers of a slice: a leader that failed is still there, or their leader "
            f"has no node yet; the Job stays active and no restart is counted{count}"
        )
        remedy = (
            f"kubectl get pods -n {namespace} -l {labels.JOBSET_NAME}={target.run} -o wide   # two leaders (index 0)?",
            f"kubectl delete jobs -n {namespace} -l {labels.JOBSET_NAME}={target.run}   # makes the set start anew",
        )
    elif kind == "webhook":
        cause = f"an admission webhook refuses them{count}"
        remedy = (
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            "kubectl get pods -n jobset-system   # a webhook that is not reached is often a controller that is down",
        )
    else:
        cause = f"none can be made{count}"
        remedy = (f"kubectl describe jobs -n {namespace} -l {labels.JOBSET_NAME}={target.run}",)
    return Diagnosis(
        f"pods-refused-{kind}" if kind else "pods-refused",
        where,
        cause,
        quotes,
        remedy,
        confidence=Confidence.CERTAIN if made == 0 else Confidence.LIKELY,
    )


def _quotas(case: Case) -> Iterator[str]:
    for each in case.evidence.all("quotas"):
        status = each.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        spelt = ", ".join(f"{name} {used.get(name, '0')} of {most}" for name, most in sorted(hard.items()))
        yield quote(f"ResourceQuota {objects.name(each)}: {spelt}")


def _pools(case: Case) -> tuple[list[str], dict[str, str]]:
    """Return node pools with enough usable nodes, and what is amiss with the others of the run's kind."""
    by_pool: dict[str, list[Object]] = defaultdict(list)
    for node in case.own_nodes:
        by_pool[objects.labels_of(node).get(labels.NODE_POOL, "?")].append(node)
    whole, broken = [], {}
    for name, nodes in by_pool.items():
        bad = {objects.name(node): why for node in nodes if (why := out_of_use(node))}
        usable = len(nodes) - len(bad)
        if usable >= case.target.nodes_per_slice:
            whole.append(name)
            continue
        told = [f"{node} {why}" for node, why in sorted(bad.items())]
        if len(nodes) < case.target.nodes_per_slice:
            told.append(f"{case.target.nodes_per_slice - len(nodes)} of its nodes are not there")
        broken[name] = f"{usable} of {case.target.nodes_per_slice} nodes usable ({'; '.join(told)})"
    return whole, broken


def _why_nodes_are_out(case: Case) -> list[str]:
    found = [f"node {objects.name(node)} {why}" for node in case.own_nodes if (why := out_of_use(node))]
    return [quote(line) for line in found[:3]]


def out_of_use(node: Object) -> str:
    """Return why no pod of a run can go to a node now; empty when it can."""
    ready = objects.condition(node, "Ready")
    if str(ready.get("status")) != "True":
        return f"is not Ready ({ready.get('reason') or 'unknown'})"
    taints = {str(taint.get("key")) for taint in (node.get("spec") or {}).get("taints") or []}
    if "cloud.google.com/impending-node-termination" in taints:
        return "is about to be terminated"
    if (node.get("spec") or {}).get("unschedulable"):
        return "is cordoned"
    return ""


def _selector(case: Case) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(case.target.pool.items())) or labels.NODE_POOL
