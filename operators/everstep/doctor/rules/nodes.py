"""Nodes that stopped answering or are about to go, and what hangs on them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.spec.findings import Severity

# A pod that is deleted has its grace period, and the kubelet a while to tell of its end.
TERMINATION_SECONDS = 60.0
DELETION_SECONDS = 60.0

SYMPTOMS = (
    Symptom(
        "node-not-ready",
        "a node stopped answering",
        ("pods-stuck", "jobset-stuck", "slice-missing", "pods-pending", "driver-not-ready", "configuration-stuck"),
    ),
    Symptom("node-maintenance", "a node is about to be taken away", ("slice-missing", "pods-pending")),
    Symptom("node-faulty", "Google reports a host as faulty", ("slice-missing", "restarts-in-vain")),
    Symptom("pods-stuck", "pods can't finish their deletion", ("jobset-stuck", "run-not-started")),
    Symptom("jobset-stuck", "a JobSet can't finish its deletion", ("run-not-started",)),
)


def not_ready(case: Case) -> Iterator[Diagnosis]:
    """Which nodes of ours don't answer?"""
    used = {(pod.get("spec") or {}).get("nodeName") for pod in case.evidence.all("pods")}
    own = {objects.name(node) for node in case.own_nodes}
    for name, node in sorted(case.nodes.items()):
        ready = objects.condition(node, "Ready")
        if str(ready.get("status")) == "True" or name not in own | used:
            continue
        pool = objects.labels_of(node).get("cloud.google.com/gke-nodepool", "?")
        since = objects.seconds_since(ready.get("lastTransitionTime"), case.now)
        ago = f" for {objects.spell(since)}" if since is not None else ""
        held = [pod for pod in case.evidence.all("pods") if (pod.get("spec") or {}).get("nodeName") == name]
        yield Diagnosis(
            "node-not-ready",
            f"node {name}",
            f"it has not answered{ago}; its slice (node pool {pool}) can't train until GKE has repaired or replaced it",
            (
                quote(f"Ready: {ready.get('status', 'absent')} {ready.get('reason', '')} {ready.get('message', '')}"),
                *(quote(f"pod {objects.full_name(pod)} is on it") for pod in held[:2]),
            ),
            (
                f"kubectl describe node {name}",
                f"gcloud compute instances describe {name} --project={case.target.project or 'PROJECT'} "
                f"--zone={case.target.location or 'ZONE'} --format='value(status,lastStartTimestamp)'",
                f"kubectl delete node {name}   # once the machine is known to be dead: frees what is stuck on it",
            ),
            severity=Severity.ERROR if held or name in used else Severity.WARNING,
        )


def leaving(case: Case) -> Iterator[Diagnosis]:
    """Which nodes of ours are about to go, or are reported as faulty?"""
    for node in case.own_nodes:
        name, labels = objects.name(node), objects.labels_of(node)
        taints = {str(taint.get("key")) for taint in (node.get("spec") or {}).get("taints") or []}
        ongoing = labels.get("cloud.google.com/active-node-maintenance") == "ONGOING"
        going = taints & {"cloud.google.com/impending-node-termination", "cloud.google.com/maintenance-window-started"}
        planned = labels.get("cloud.google.com/scheduled-maintenance-time", "")
        fault = labels.get("cloud.google.com/fault-behavior")
        if fault:
            yield Diagnosis(
                "node-faulty",
                f"node {name}",
                f"Google reports its host as faulty ({fault})",
                (quote(f"cloud.google.com/fault-behavior={fault}"),),
                (f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data   # then it can be replaced",),
            )
        if going or ongoing:
            yield Diagnosis(
                "node-maintenance",
                f"node {name}",
                "it is being taken away for maintenance or preemption; its slice restarts elsewhere or waits",
                (quote(f"taints {', '.join(sorted(going)) or 'none'}; active-node-maintenance={ongoing}"),),
                (f"kubectl describe node {name}", "nothing to do: the run resumes from its newest checkpoint"),
                severity=Severity.WARNING,
            )
        elif planned.isdecimal() and 0 < int(planned) - case.now.timestamp() < 24 * 3600:
            until = objects.spell(int(planned) - case.now.timestamp())
            yield Diagnosis(
                "node-maintenance",
                f"node {name}",
                f"its maintenance begins in {until}",
                (quote(f"cloud.google.com/scheduled-maintenance-time={planned}"),),
                (f"kubectl label node {name} cloud.google.com/perform-maintenance=true   # to have it now instead",),
                severity=Severity.NOTE,
            )


def stuck_pods(case: Case) -> Iterator[Diagnosis]:
    """Which pods of the run are being deleted for too long? A foreground deletion waits for each of them."""
    for pod in case.evidence.all("pods"):
        metadata = pod["metadata"]
        waited = objects.seconds_since(metadata.get("deletionTimestamp"), case.now)
        if waited is None or waited < TERMINATION_SECONDS:
            continue
        place = (pod.get("spec") or {}).get("nodeName") or ""
        node = case.nodes.get(place)
        gone = case.evidence.saw("nodes") and place and node is None
        dead = node is not None and not objects.is_true(node, "Ready")
        where = "which is gone" if gone else "which does not answer" if dead else "which answers"
        finalizers = metadata.get("finalizers") or []
        yield Diagnosis(
            "pods-stuck",
            f"pod {objects.full_name(pod)}",
            f"it was to end {objects.spell(waited)} ago and hangs on node {place}, {where}"
            + (f"; finalizers: {', '.join(finalizers)}" if finalizers else ""),
            (quote(f"deletionTimestamp: {metadata.get('deletionTimestamp')}, nodeName: {place}"),),
            (
                f"kubectl delete pod -n {metadata.get('namespace')} {objects.name(pod)} --force --grace-period=0"
                "   # only once its node is known to be dead",
            ),
            confidence=Confidence.CERTAIN if gone or dead else Confidence.LIKELY,
        )


def stuck_jobset(case: Case) -> Iterator[Diagnosis]:
    """Does the JobSet's deletion hang? No new one of that name can be made until it is through."""
    jobset = case.jobset
    if jobset is None:
        return
    metadata = jobset["metadata"]
    waited = objects.seconds_since(metadata.get("deletionTimestamp"), case.now)
    if waited is None or waited < DELETION_SECONDS:
        return
    left = [*case.evidence.all("jobs"), *case.evidence.all("pods")]
    finalizers = [str(each) for each in metadata.get("finalizers") or []]
    foreign = [each for each in finalizers if each != "foregroundDeletion"]
    waits = ", ".join(objects.name(each) for each in left[:3])
    cause = f"its deletion, begun {objects.spell(waited)} ago, "
    if left:
        cause += f"waits for {len(left)} Jobs and pods that are still there ({waits}{', …' * (len(left) > 3)})"
    else:
        cause += f"waits for whoever set the finalizer {', '.join(foreign or finalizers)}"
    yield Diagnosis(
        "jobset-stuck",
        f"JobSet {objects.full_name(jobset)}",
        cause,
        (quote(f"finalizers: {', '.join(finalizers) or 'none'}"),),
        (
            f"kubectl get jobs,pods -n {metadata.get('namespace')} -l jobset.sigs.k8s.io/jobset-name="
            f"{objects.name(jobset)} -o wide",
            *(
                ()
                if left
                else (
                    f"kubectl patch jobset -n {metadata.get('namespace')} {objects.name(jobset)} --type=merge -p "
                    '\'{"metadata": {"finalizers": null}}\'   # only if its owner is not to come back',
                )
            ),
        ),
    )


RULES = (not_ready, leaving, stuck_pods, stuck_jobset)
