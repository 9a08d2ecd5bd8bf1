"""The run itself: does it get anywhere, is it backed up, and may it be launched at all? Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.spec.findings import Severity
from everstep.watch import classifier, progress
from everstep.watch import pods as pod_states
from everstep.watch.classifier import CauseKind
from everstep.watch.run_state import Phase

# The age of the newest complete backup, in intervals, beyond which something is wrong.
LATE_INTERVALS = 2.0
FEW_RESTARTS = 3
# status.json is written seconds apart.
SILENT_SECONDS = 300.0
STARTING_SECONDS = 300.0

SYMPTOMS = (
    Symptom("out-of-memory", "a container used more memory than it may", ("restarts-in-vain", "run-failed")),
    Symptom("restarts-in-vain", "the run restarts without getting further", ("run-failed", "backup-late")),
    Symptom("run-failed", "the run failed", ("backup-late", "lease-held")),
    Symptom("run-not-started", "the run does not start", ("backup-late",)),
    Symptom("run-silent", "the run reports nothing any more", ("backup-late",)),
    Symptom("run-suspended", "the run is suspended", ("run-silent", "backup-late", "run-not-started")),
    Symptom("backup-late", "there is no backup for more than two intervals"),
    Symptom("lease-held", "somebody else holds the run"),
)


def out_of_memory(case: Case) -> Iterator[Diagnosis]:
    """Which pods were killed for want of memory? The RAM disk counts as memory of the pod that writes it."""
    killed: dict[str, list[str]] = defaultdict(list)
    limits: dict[str, str] = {}
    for pod in case.evidence.all("pods"):
        for container, state, last in objects.container_states(pod):
            ended = state.get("terminated") or last.get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                killed[container].append(objects.full_name(pod))
                limits[container] = _memory_limit(pod, container)
    for container, pods in killed.items():
        yield Diagnosis(
            "out-of-memory",
            f"container {container} of {len(pods)} pods of run {case.target.run}",
            "it was killed for want of memory (OOMKilled); what it writes to the RAM disk counts as its own memory, so "
            "the limit has to hold the training's needs and the whole RAM disk",
            tuple(quote(f"pod {name}: OOMKilled, memory limit {limits[container] or 'none'}") for name in pods[:3]),
            ("raise trainer.resources.memory in the run file to working set + in_memory_volume_size, or remove it",),
        )


def restarts(case: Case) -> Iterator[Diagnosis]:
    """Does the run restart again and again without a step gained?"""
    state = case.state
    by_attempt: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for report in case.evidence.all("attempts"):
        by_attempt[int(report.get("launch") or 0), int(report.get("restart") or 0)].append(report)
    ends = [progress.end_of(*key, reports) for key, reports in sorted(by_attempt.items())]
    finished = ends if state is None or state.is_terminal else ends[:-1]
    stuck = progress.is_stuck(finished)
    steps = [end.last_step for end in ends[-FEW_RESTARTS:]]
    still = len(steps) >= FEW_RESTARTS and steps[0] is not None and max(each or 0 for each in steps) <= steps[0]
    unreported = state is not None and state.restarts >= FEW_RESTARTS and not ends and case.evidence.saw("attempts")
    if not (stuck or still or unreported):
        return
    cause = finished[-1].cause if finished else classifier.UNKNOWN
    count = state.restarts if state is not None else len(ends) - 1
    reached = max((end.last_step or 0 for end in ends), default=0)
    yield Diagnosis(
        "restarts-in-vain",
        f"run {case.target.run}",
        f"it restarted {count} times without getting beyond step {reached}"
        + (f": {cause.summary}" if cause.kind is not CauseKind.UNKNOWN else ", and no report says why"),
        tuple(
            quote(f"launch {end.launch}, restart {end.restart}: step {end.last_step}, {end.cause}") for end in ends[-3:]
        )
        or (quote(f"restarts: {count}; no node has reported"),),
        (
            _trainer_log(case),
            f"everstep resume {case.target.run} --before-step STEP --reason REASON   # if that step itself is bad",
        ),
        confidence=Confidence.CERTAIN if stuck else Confidence.LIKELY,
    )


def failed(case: Case) -> Iterator[Diagnosis]:
    """Has the run failed, and on what?"""
    state = case.state
    if state is None or state.phase is not Phase.FAILED:
        return
    pods = [pod_states.of_pod(pod) for pod in case.pods]
    cause = classifier.classify(pods)
    if cause.kind is CauseKind.UNKNOWN:
        cause = progress.cause_in(_newest_reports(case)) or classifier.of_message(state.message) or cause
    known = cause.kind is not CauseKind.UNKNOWN
    logs = [
        quote(f"{place}: {text.splitlines()[-1]}")
        for place, text in sorted(case.evidence.logs.items())
        if cause.pod and f"/{cause.pod}/" in place and text.strip()
    ]
    yield Diagnosis(
        "run-failed",
        f"run {case.target.run}",
        str(cause) if known else f"it failed, and nothing in the cluster says why ({state.reason})",
        (quote(f"JobSet condition Failed: {state.reason}: {state.message}"), *logs[:2]),
        (
            _trainer_log(case, cause.pod),
            "correct what it says, then launch the run again: it resumes from its newest complete checkpoint",
        ),
        confidence=Confidence.CERTAIN if known else Confidence.POSSIBLE,
    )


def start(case: Case) -> Iterator[Diagnosis]:
    """Is the run still not running after a while?"""
    state, jobset = case.state, case.jobset
    if state is None or jobset is None or state.phase is not Phase.STARTING:
        return
    since = objects.seconds_since(jobset["metadata"].get("creationTimestamp"), case.now) or 0.0
    if since < STARTING_SECONDS or state.restarts:
        return
    yield Diagnosis(
        "run-not-started",
        f"run {case.target.run}",
        f"{state.ready_jobs} of {state.jobs} slices are ready {objects.spell(since)} after its launch",
        (quote(str(state)),),
        (f"kubectl get pods -n {state.namespace} -l jobset.sigs.k8s.io/jobset-name={state.name} -o wide",),
        severity=Severity.WARNING,
        confidence=Confidence.POSSIBLE,
    )


def suspended(case: Case) -> Iterator[Diagnosis]:
    """Is the run suspended, by whom?"""
    state = case.state
    if state is None or state.phase is not Phase.SUSPENDED or case.target.queue:
        return
    yield Diagnosis(
        "run-suspended",
        f"run {case.target.run}",
        f"Everstep stopped it: {state.stopped}" if state.stopped else "somebody suspended its JobSet",
        (quote(str(state)),),
        (
            "launch the run again: the suspended JobSet is replaced"
            if state.stopped
            else f"kubectl patch jobset -n {state.namespace} {state.name} --type=merge -p "
            '\'{"spec": {"suspend": false}}\'',
        ),
        severity=Severity.ERROR if state.stopped else Severity.WARNING,
    )


def silence(case: Case) -> Iterator[Diagnosis]:
    """Does a run whose pods all run report anything?"""
    state, folder = case.state, case.evidence.one("run-folder")
    if state is None or folder is None or state.phase is not Phase.RUNNING:
        return
    status = folder.get("status") or {}
    since = objects.seconds_since(status.get("updated"), case.now)
    if since is None or since < SILENT_SECONDS:
        return
    yield Diagnosis(
        "run-silent",
        f"run {case.target.run}",
        f"all its pods run, but its last report (step {status.get('step')}) is {objects.spell(since)} old: it hangs, "
        "or its pods can't write to their folder",
        (quote(f"status.json: updated {status.get('updated')}, phase {status.get('phase')}"),),
        (_trainer_log(case), "everstep provision CLUSTER_FILE --mode check   # may its ServiceAccount write there?"),
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


def backups(case: Case) -> Iterator[Diagnosis]:
    """How old is the newest complete backup, against the interval that was asked for?"""
    state, folder, minutes = case.state, case.evidence.one("run-folder"), case.target.backup_minutes
    if state is None or folder is None or minutes <= 0 or state.phase not in (Phase.RUNNING, Phase.STARTING):
        return
    newest = folder.get("newest_complete_at")
    begun = (case.jobset or {})["metadata"].get("creationTimestamp")
    since = objects.seconds_since(newest, case.now)
    running = objects.seconds_since(begun, case.now)
    # Before the run has lived for that long, no backup of it can be late, whatever an earlier launch left behind.
    age = running if since is None else min(since, running if running is not None else since)
    if age is None or age < LATE_INTERVALS * minutes * 60:
        return
    found = ", ".join(f"{each['name']} {each['state']}" for each in folder.get("backups", [])[-3:]) or "none"
    yield Diagnosis(
        "backup-late",
        f"run {case.target.run}",
        f"no complete backup for {objects.spell(age)}, while one is wanted every {minutes:g} min: what was trained "
        "since then lives in RAM only"
        + (
            f"; {state.restarts} restarts: the timer starts anew with each, so a run that restarts more often than the "
            "interval is never backed up"
            if state.restarts
            else ""
        ),
        (quote(f"newest complete: {newest or 'none'}; last ones: {found}"),),
        (
            "lower checkpoints.backup.every_minutes, or set checkpoints.durable.every_hours, in the run file",
            "kubectl logs -n gke-managed-checkpointing -l k8s-app=high-scale-checkpointing -c replication-worker "
            "--tail=100 --prefix | grep -i backup",
        ),
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
    )


def lease(case: Case) -> Iterator[Diagnosis]:
    """Does somebody hold the run whose JobSet is not the one that is here?"""
    folder = case.evidence.one("run-folder")
    found = (folder or {}).get("lease") or {}
    holder = found.get("holder")
    if not holder:
        return
    bound, here = (found.get("jobset") or {}), case.jobset
    own = here is not None and bound.get("uid") == here["metadata"].get("uid")
    expired = (objects.seconds_since(found.get("expires"), case.now) or -1.0) > 0
    if own or (expired and not bound) or (here is None and not bound and expired):
        return
    lives = "whose JobSet is not in this cluster and namespace" if bound else "that is launching it now"
    yield Diagnosis(
        "lease-held",
        f"run {case.target.run}",
        f"it is held by {holder}, {lives}; a second launch of it is refused",
        (
            quote(
                f"lease.json: {found.get('purpose')}, JobSet {bound.get('namespace')}/{bound.get('name')}, acquired "
                f"{found.get('acquired')}, expires {found.get('expires')}"
            ),
        ),
        (
            f"kubectl get jobset -n {bound.get('namespace') or case.target.namespace} {case.target.run}   # in the "
            "cluster of that holder",
            "end that run, or give this one another name; a lease whose run is over is broken by the next launch",
        ),
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


RULES = (out_of_memory, restarts, failed, start, suspended, silence, backups, lease)


def _trainer_log(case: Case, pod: str = "") -> str:
    namespace = case.target.namespace
    if pod:
        return f"kubectl logs -n {namespace} {pod} -c trainer --tail=100"
    return (
        f"kubectl logs -n {namespace} -l jobset.sigs.k8s.io/jobset-name={case.target.run} -c trainer --tail=50 --prefix"
    )


def _memory_limit(pod: dict[str, Any], container: str) -> str:
    spec = pod.get("spec") or {}
    for each in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        if each.get("name") == container:
            return str(((each.get("resources") or {}).get("limits") or {}).get("memory") or "")
    return ""


def _newest_reports(case: Case) -> list[dict[str, Any]]:
    reports = case.evidence.all("attempts")
    newest = max(((int(each.get("launch") or 0), int(each.get("restart") or 0)) for each in reports), default=None)
    return [each for each in reports if (int(each.get("launch") or 0), int(each.get("restart") or 0)) == newest]
