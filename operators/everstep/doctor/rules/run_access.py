"""The run's pods: may they use the run's folder, by the bucket's policy? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.rules.driver import DENIED
from everstep.provision.cloud import run_access
from everstep.provision.cloud.run_access import Pods
from everstep.watch.run_state import Phase

SYMPTOMS = (
    Symptom(
        "run-unbound",
        "the run's pods may not use the run's folder",
        ("restarts-in-vain", "run-failed", "run-not-started", "run-silent"),
    ),
)


def unbound(case: Case) -> Iterator[Diagnosis]:
    """Do the pods of a run that fails without a report lack a role on its folder?

    The policy alone does not tell: a role on the project is not seen in it. So either the pods say that they are
    denied, or the policy lets the pods of other runs in one by one.
    """
    target, account = case.target, objects.service_account(case.jobset)
    if not target.project or not account or not _fails(case) or _has_reported(case):
        return
    if run_access.acts_as_another(case.evidence.one("service-account")):
        return
    pods = Pods(target.project, target.cluster, target.namespace, account, case.project_number)
    for policy in case.evidence.all("bucket-policies"):
        if policy.get("name") != target.bucket:
            continue
        grants = run_access.lacking(policy, pods, target.bucket, target.run)
        refusals = _refusals(case)
        if not grants or not (refusals or run_access.is_by_run(policy)):
            continue
        principal = pods.principal(policy)
        yield Diagnosis(
            "run-unbound",
            f"run {target.run}",
            f"its pods may not use gs://{target.bucket}/{target.run}/: the bucket's policy gives {principal} nothing "
            "there, as for every run that had no run file when the cluster was provisioned",
            refusals or (quote("no node of this launch has reported; other runs have roles on their folders"),),
            (
                *(case.number_first() if run_access.NUMBER_UNKNOWN in principal else ()),
                *run_access.remedies(target.bucket, target.run, grants),
            ),
            confidence=Confidence.CERTAIN if refusals else Confidence.LIKELY,
        )


RULES = (unbound,)


def _fails(case: Case) -> bool:
    state = case.state
    if state is None:
        return False
    ended = any((pod.get("status") or {}).get("phase") == "Failed" for pod in case.evidence.all("pods"))
    return ended or state.restarts > 0 or state.phase is Phase.FAILED


def _has_reported(case: Case) -> bool:
    """Say whether a node of this launch could write a report, or whether that is not known."""
    launch = None if case.state is None else case.state.launch
    reports = case.evidence.all("attempts")
    return not case.evidence.saw("attempts") or any(
        launch is None or int(report.get("launch") or 0) >= launch for report in reports
    )


def _refusals(case: Case) -> tuple[str, ...]:
    """Return the last line in the log of each of the run's containers that says that its bucket is closed to it."""
    found = []
    for place, text in sorted(case.evidence.logs.items()):
        if not place.startswith(f"{case.target.namespace}/{case.target.run}-"):
            continue
        lines = [line for line in text.splitlines() if case.target.bucket in line and DENIED.search(line)]
        found += [quote(f"{place}: {line}") for line in lines[-1:]]
    return tuple(found)
