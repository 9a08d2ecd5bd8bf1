"""The JobSet controller and the PriorityClasses that runs rely on. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.clients.resources import JOBSET_DEFINITION, JOBSET_NAMESPACE, JOBSET_RELEASE
from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.provision.in_cluster import jobset as jobset_controller
from everstep.spec.findings import Severity

SYMPTOMS = (
    Symptom("jobset-missing", "the JobSet controller is not installed", ("pods-refused-webhook",)),
    Symptom(
        "jobset-controller-down",
        "the JobSet controller does not run",
        ("pods-refused-webhook", "jobset-stuck", "pods-refused"),
    ),
    Symptom("jobset-old", "the JobSet controller is too old for a hot swap", ("pods-pending", "slice-missing")),
    Symptom("priority-missing", "the run's PriorityClass is not there", ("pods-refused-priority",)),
    Symptom("priority-differs", "a PriorityClass is not as the cluster file says", ("pods-pending",)),
    Symptom("priority-default", "a PriorityClass is everybody's default"),
)


def jobset(case: Case) -> Iterator[Diagnosis]:
    """Is the JobSet controller there, well, and new enough?"""
    definitions = case.evidence.all("definitions")
    if case.evidence.saw("definitions") and all(objects.name(each) != JOBSET_DEFINITION for each in definitions):
        yield Diagnosis(
            "jobset-missing",
            "JobSet",
            "the kind JobSet is not there: the controller was never installed, so nothing can be launched",
            ('no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"',),
            (f"kubectl apply --server-side -f {JOBSET_RELEASE}",),
        )
        return
    for each in case.evidence.all("deployments"):
        if (each["metadata"].get("namespace"), objects.name(each)) != (JOBSET_NAMESPACE, "jobset-controller-manager"):
            continue
        yield from _availability(case, each)
        yield from _version(case, each)


def priorities(case: Case) -> Iterator[Diagnosis]:
    """Are the classes there with the values that the cluster file gives them?"""
    if not case.evidence.saw("priority-classes"):
        return
    found = {objects.name(each): each for each in case.evidence.all("priority-classes")}
    target = case.target
    for name in dict.fromkeys([*target.priorities, *([target.priority] if target.priority else [])]):
        value = target.priorities.get(name)
        there = found.get(name)
        if there is None:
            needed = name == target.priority
            yield Diagnosis(
                "priority-missing",
                f"PriorityClass {name}",
                "it is not there, so no pod that names it can be made",
                (f'no PriorityClass with name "{name}" was found',),
                (f"kubectl create priorityclass {name} --value={value if value is not None else 'VALUE'}",),
                severity=Severity.ERROR if needed or not target.run else Severity.WARNING,
            )
            continue
        policy = there.get("preemptionPolicy") or "PreemptLowerPriority"
        if (value is not None and int(there.get("value", 0)) != value) or policy != "PreemptLowerPriority":
            yield Diagnosis(
                "priority-differs",
                f"PriorityClass {name}",
                f"its value is {there.get('value', 0)} with {policy}; the cluster file wants {value} with "
                "PreemptLowerPriority, and neither can be changed in place",
                (f"value: {there.get('value', 0)}, preemptionPolicy: {policy}",),
                (
                    f"correct priorities.{name} in the cluster file, or make the class anew while no pod uses it: "
                    f"kubectl delete priorityclass {name} && kubectl create priorityclass {name} --value={value}",
                ),
            )
    for name, each in found.items():
        if each.get("globalDefault"):
            yield Diagnosis(
                "priority-default",
                f"PriorityClass {name}",
                f"every pod that names no class gets priority {each.get('value', 0)} from it, other teams' too, so who "
                "gives up a slice to whom is not what the cluster file says",
                (f"globalDefault: true, value: {each.get('value', 0)}",),
                (f"kubectl patch priorityclass {name} --type=merge -p '{{\"globalDefault\": false}}'",),
                severity=Severity.WARNING,
            )


RULES = (jobset, priorities)


def _availability(case: Case, deployment: objects.Object) -> Iterator[Diagnosis]:
    status, spec = deployment.get("status") or {}, deployment.get("spec") or {}
    if int(status.get("availableReplicas") or 0) > 0 or not status:
        return
    seen = [f"{status.get('availableReplicas') or 0} of {spec.get('replicas', 1)} replicas available"]
    killed = False
    for pod in case.evidence.all("controller-pods"):
        for container, state, last in objects.container_states(pod):
            waiting, ended = state.get("waiting") or {}, last.get("terminated") or state.get("terminated") or {}
            killed |= ended.get("reason") == "OOMKilled"
            if waiting.get("reason") or ended.get("reason"):
                seen.append(
                    quote(
                        f"pod {objects.name(pod)}, container {container}: {waiting.get('reason', '')} "
                        f"{waiting.get('message', '')} {ended.get('reason', '')}"
                    )
                )
    memory = (
        f"kubectl -n {JOBSET_NAMESPACE} patch deployment jobset-controller-manager --type=strategic -p "
        '\'{"spec":{"template":{"spec":{"containers":[{"name":"manager","resources":{"limits":'
        '{"memory":"2Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]}}}}\''
    )
    yield Diagnosis(
        "jobset-controller-down",
        f"Deployment {JOBSET_NAMESPACE}/jobset-controller-manager",
        "it is killed for want of memory, so JobSets neither start nor restart"
        if killed
        else "it is not available, so JobSets neither start nor restart, and its webhooks refuse pods",
        tuple(seen),
        (memory,)
        if killed
        else (
            f"kubectl -n {JOBSET_NAMESPACE} describe pods",
            f"kubectl -n {JOBSET_NAMESPACE} logs deployment/jobset-controller-manager --tail=50 --previous",
        ),
    )


def _version(case: Case, deployment: objects.Object) -> Iterator[Diagnosis]:
    version = jobset_controller.version_of(deployment)
    if version is None or version >= jobset_controller.HOT_SWAP_VERSION:
        return
    yield Diagnosis(
        "jobset-old",
        f"Deployment {JOBSET_NAMESPACE}/{objects.name(deployment)}",
        f"JobSet {version[0]}.{version[1]} keeps a run of higher priority from taking a slice; that came with 0.11",
        (quote(f"image {jobset_controller.image(deployment)}"),),
        (f"kubectl apply --server-side --force-conflicts -f {JOBSET_RELEASE}",),
        severity=Severity.ERROR if case.target.preempts else Severity.WARNING,
        confidence=Confidence.CERTAIN if case.target.preempts else Confidence.POSSIBLE,
    )
