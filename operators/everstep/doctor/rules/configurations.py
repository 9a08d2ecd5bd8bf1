"""CheckpointConfigurations: there, without conflict, matching nodes, and not stuck in deletion. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.clients.resources import CHECKPOINTING_NAMESPACE
from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.evidence import Object
from everstep.spec.findings import Severity

# A deletion waits for the driver's DaemonSet and pods; beyond this it hangs.
DELETION_SECONDS = 120.0

SYMPTOMS = (
    Symptom("configuration-missing", "the CheckpointConfiguration is not there", ("volume-not-mounted",)),
    Symptom(
        "configuration-conflict",
        "two CheckpointConfigurations select the same nodes",
        ("volume-not-mounted", "driver-missing"),
    ),
    Symptom("configuration-stuck", "a CheckpointConfiguration can't finish its deletion", ("volume-not-mounted",)),
    Symptom("configuration-without-nodes", "a CheckpointConfiguration selects no node", ("volume-not-mounted",)),
    Symptom("configuration-other-bucket", "a CheckpointConfiguration has another bucket than the cluster file", ()),
)


def missing(case: Case) -> Iterator[Diagnosis]:
    """Is each configuration of the cluster file there, with its bucket?"""
    if not case.evidence.saw("configurations"):
        return
    found = {objects.name(each): each for each in case.evidence.all("configurations")}
    for name, wanted in case.target.configurations.items():
        there = found.get(name)
        if there is None:
            yield Diagnosis(
                "configuration-missing",
                f"CheckpointConfiguration {name}",
                f"it is not there, so nodes of type {wanted.get('machine_type')} get neither RAM disk nor driver",
                (f"found: {', '.join(sorted(found)) or 'none at all'}",),
                ("everstep provision CLUSTER_FILE --mode apply   # or the DAG provision_checkpointing",),
            )
            continue
        bucket = (there.get("spec") or {}).get("cloudStorageBucketName")
        if bucket != wanted.get("bucket"):
            yield Diagnosis(
                "configuration-other-bucket",
                f"CheckpointConfiguration {name}",
                f"backups go to {bucket!r}, while the cluster file, and so every restore, looks in "
                f"{wanted.get('bucket')!r}",
                (f"spec.cloudStorageBucketName: {bucket}",),
                (
                    "correct the cluster file, or make the configuration anew, which wipes the RAM disks: "
                    "everstep provision CLUSTER_FILE --mode apply --recreate",
                ),
            )


def conflicts(case: Case) -> Iterator[Diagnosis]:
    """Does the controller say that a configuration overlaps with another one?"""
    for each in case.evidence.all("configurations"):
        name = objects.name(each)
        said = [
            event
            for event in case.evidence.all("configuration-events")
            if event.get("reason") == "Conflict" and objects.about(event)[1] == name and _same(event, each)
        ]
        if not said or _has_driver(case, each):
            continue
        others = [objects.name(other) for other in _overlapping(case, each)]
        yield Diagnosis(
            "configuration-conflict",
            f"CheckpointConfiguration {name}",
            f"its nodes already have the driver of {' and '.join(others) or 'another configuration'}, so it gets none, "
            "now and later",
            tuple(objects.told(said)),
            (
                f"kubectl get checkpointconfigurations {' '.join([name, *others])} -o yaml   # compare nodeSelector",
                f"kubectl delete checkpointconfiguration {name}   # the one that is too many",
            ),
        )


def stuck(case: Case) -> Iterator[Diagnosis]:
    """Does a deletion hang on its finalizer?"""
    for each in case.evidence.all("configurations"):
        metadata = each["metadata"]
        waited = objects.seconds_since(metadata.get("deletionTimestamp"), case.now)
        if waited is None or waited < DELETION_SECONDS:
            continue
        name = objects.name(each)
        drivers = [pod for pod in case.evidence.all("driver-pods") if _driver_of(each) in objects.name(pod)]
        seen = [f"deleted {objects.spell(waited)} ago; finalizers: {', '.join(metadata.get('finalizers') or [])}"]
        for pod in drivers[:3]:
            seen.append(f"pod {objects.full_name(pod)} on {(pod.get('spec') or {}).get('nodeName')} is still there")
        if drivers:
            cause = f"its deletion waits for {len(drivers)} pods of its driver that don't end"
            remedy = tuple(
                f"kubectl delete pod -n {CHECKPOINTING_NAMESPACE} {objects.name(pod)} --force --grace-period=0"
                "   # only if its node is dead"
                for pod in drivers[:3]
            )
        else:
            cause = (
                "its driver is gone, but nobody takes the finalizer away: the add-on was switched off first, or its "
                "controller does not run"
            )
            remedy = (
                f"kubectl get deployments -n {CHECKPOINTING_NAMESPACE}",
                f'kubectl patch checkpointconfiguration {name} --type=merge -p \'{{"metadata": {{"finalizers": '
                "null}}}'   # only if that controller is not to come back",
            )
        yield Diagnosis(
            "configuration-stuck",
            f"CheckpointConfiguration {name}",
            cause,
            tuple(seen),
            remedy,
            confidence=Confidence.CERTAIN if case.evidence.saw("driver-pods") else Confidence.POSSIBLE,
        )


def without_nodes(case: Case) -> Iterator[Diagnosis]:
    """Does a configuration select nodes at all?"""
    if not case.evidence.saw("nodes"):
        return
    for each in case.evidence.all("configurations"):
        if each["metadata"].get("deletionTimestamp"):
            continue
        selector = (each.get("spec") or {}).get("nodeSelector") or {}
        if any(objects.chosen(selector, node) for node in case.nodes.values()):
            continue
        types = sorted(
            {objects.labels_of(node).get("node.kubernetes.io/instance-type", "") for node in case.nodes.values()} - {""}
        )
        yield Diagnosis(
            "configuration-without-nodes",
            f"CheckpointConfiguration {objects.name(each)}",
            "no node has the labels that it selects: the node pools are empty, or a machine type is misspelt",
            (quote(f"nodeSelector: {selector}"), quote(f"machine types that there are: {', '.join(types) or 'none'}")),
            (
                f"gcloud container node-pools list --cluster={case.target.gcloud_cluster}",
                "correct machine_type in the cluster file if it is misspelt (v5e is ct5lp-hightpu-4t)",
            ),
            severity=Severity.WARNING,
        )


RULES = (missing, conflicts, stuck, without_nodes)


def _driver_of(configuration: Object) -> str:
    return f"multitier-driver-{configuration['metadata'].get('uid')}"


def _has_driver(case: Case, configuration: Object) -> bool:
    return any(objects.name(each) == _driver_of(configuration) for each in case.evidence.all("daemonsets"))


def _same(event: Object, configuration: Object) -> bool:
    """Say whether an event is about this very object and not about an earlier one of that name."""
    about = event.get("involvedObject") or {}
    return about.get("uid") in (None, "", configuration["metadata"].get("uid"))


def _overlapping(case: Case, configuration: Object) -> list[Object]:
    """Return the other configurations that select one of its nodes."""

    def nodes(one: Object) -> set[str]:
        selector = (one.get("spec") or {}).get("nodeSelector") or {}
        return {name for name, node in case.nodes.items() if objects.chosen(selector, node)}

    own = nodes(configuration)
    return [
        other
        for other in case.evidence.all("configurations")
        if objects.name(other) != objects.name(configuration) and nodes(other) & own
    ]
