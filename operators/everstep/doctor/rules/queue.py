"""Kueue: is the run's queue there and active, and what does its Workload wait for? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Diagnosis, Symptom, quote
from everstep.spec.findings import Severity
from everstep.watch.run_state import Phase

SYMPTOMS = (
    Symptom("queue-missing", "the run's LocalQueue is not there", ("queue-waits",)),
    Symptom("queue-inactive", "the run's queue admits nothing", ("queue-waits",)),
    Symptom("queue-waits", "the run waits for its admission"),
)


def queue(case: Case) -> Iterator[Diagnosis]:
    """Is the queue there and active?"""
    target = case.target
    if not target.queue:
        return
    if case.evidence.saw("local-queue") and case.evidence.one("local-queue") is None:
        yield Diagnosis(
            "queue-missing",
            f"LocalQueue {target.namespace}/{target.queue}",
            "it is not there, so Kueue never admits the run",
            ("not found",),
            (f"kubectl get localqueues -n {target.namespace}   # then correct queue in the cluster file, or make it",),
        )
    for kind, found in (
        ("LocalQueue", case.evidence.one("local-queue")),
        ("ClusterQueue", case.evidence.one("cluster-queue")),
    ):
        active = objects.condition(found or {}, "Active")
        if active and str(active.get("status")) != "True":
            yield Diagnosis(
                "queue-inactive",
                f"{kind} {objects.full_name(found or {})}",
                f"it is not active ({active.get('reason')}), so it admits nothing",
                (quote(active.get("message", "")),),
                (f"kubectl describe {kind.lower()} {objects.name(found or {})}",),
            )


def workload(case: Case) -> Iterator[Diagnosis]:
    """What does the run's Workload wait for?"""
    target, state = case.target, case.state
    if not target.queue or state is None or state.phase not in (Phase.SUSPENDED, Phase.STARTING):
        return
    for each in case.evidence.all("workloads"):
        if objects.is_true(each, "Admitted"):
            continue
        said = [
            objects.condition(each, kind)
            for kind in ("QuotaReserved", "Evicted", "Preempted", "Requeued")
            if objects.condition(each, kind)
        ]
        message = next((str(one.get("message")) for one in said if str(one.get("status")) == "False"), "")
        yield Diagnosis(
            "queue-waits",
            f"run {target.run}",
            "it waits in Kueue's queue for its admission" + (f": {quote(message)}" if message else ""),
            tuple(
                quote(f"{one.get('type')}={one.get('status')} {one.get('reason')}: {one.get('message')}")
                for one in said
            )
            or ("no condition says why",),
            (
                f"kubectl describe workload -n {target.namespace} {objects.name(each)}",
                f"kubectl get workloads -n {target.namespace}   # who is before it",
            ),
            severity=Severity.WARNING,
        )


RULES = (queue, workload)
