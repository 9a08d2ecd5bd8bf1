"""What the replicator wrote into its files and its log. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.rules.driver import denied
from everstep.doctor.rules.replicator_lines import HARMLESS, Meaning, alarming, bare, meaning_of
from everstep.spec.findings import Severity

DRIVER_CONTAINER = "replication-worker"

SYMPTOMS = (
    Symptom("replicator-config", "the job asked the replicator for what it can't do", ("backup-late",)),
    Symptom("step-zero", "a checkpoint of step 0 was saved", ("backup-late",)),
    Symptom("ram-disk-full", "the RAM disk is full", ("backup-failed", "backup-late")),
    Symptom("replicator-failed", "the replicator failed", ("backup-late",)),
    Symptom("backup-failed", "a backup could not be uploaded", ("backup-late",)),
    Symptom("backup-overlap", "backups take longer than their interval", ("backup-late",)),
    Symptom("no-progress", "the training saves the same weights again"),
    Symptom("fresh-start", "the run started from nothing although there is something to restore"),
)
_WARNINGS = frozenset({"backup-failed", "backup-overlap", "no-progress", "fresh-start"})


@dataclass(frozen=True)
class Said:
    """A line of the replicator, where it was, and whether it had given up when it wrote it."""

    where: str
    line: str
    fatal: bool


def replicator(case: Case) -> Iterator[Diagnosis]:
    """What did the replicators say that is not said at every ordinary start?"""
    by_symptom: dict[str, list[tuple[Said, Meaning | None]]] = defaultdict(list)
    for said in _said(case):
        meaning = meaning_of(said.line)
        if meaning is not None and meaning.symptom == HARMLESS:
            continue
        if meaning is None and not said.fatal:
            continue
        symptom = meaning.symptom if meaning is not None else "replicator-failed"
        by_symptom[symptom].append((said, meaning))
    for symptom, found in by_symptom.items():
        if symptom == "fresh-start" and not _something_to_restore(case):
            continue
        yield _diagnosis(case, symptom, found)


RULES = (replicator,)


def _diagnosis(case: Case, symptom: str, found: list[tuple[Said, Meaning | None]]) -> Diagnosis:
    places = list(dict.fromkeys(said.where for said, _ in found))
    quotes = tuple(dict.fromkeys(quote(f"{said.where}: {bare(said.line)}") for said, _ in reversed(found)))
    fatal = any(said.fatal for said, _ in found)
    where = f"replicator of run {case.target.run or '?'} ({len(places)} place{'s' if len(places) > 1 else ''})"
    if symptom == "driver-denied":
        return denied(case, where, case.target.bucket or "BUCKET", quotes)
    if symptom == "bucket-not-hierarchical":
        where = f"bucket {case.target.bucket or '?'}"
    if symptom == "fresh-start":
        return Diagnosis(
            symptom,
            f"run {case.target.run}",
            "the replicator found nothing that it could restore, although the bucket holds a complete checkpoint: the "
            "run's name, its number of nodes or its data parallelism is another one than when that was saved",
            quotes,
            (
                f"gcloud storage ls gs://{case.target.bucket}/{case.target.run}/",
                "compare slices.count and checkpoints.data_parallelism with everstep/run.json there",
            ),
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )
    known = next((meaning for _, meaning in found if meaning is not None), None)
    cause = known.cause if known is not None else "the replicator gave up, in words that the doctor does not know"
    mild = symptom in _WARNINGS and not fatal
    return Diagnosis(
        symptom,
        where,
        cause + ("; until it is started again, nothing is replicated or backed up" if fatal else ""),
        quotes,
        tuple(dict.fromkeys(remedy for _, meaning in found if (remedy := _remedy(case, meaning)))),
        severity=Severity.WARNING if mild else Severity.ERROR,
        confidence=Confidence.CERTAIN if fatal or mild else Confidence.LIKELY,
    )


def _remedy(case: Case, meaning: Meaning | None) -> str:
    if meaning is not None:
        return meaning.remedy.replace("RUN", case.target.run or "RUN")
    return (
        "kubectl logs -n gke-managed-checkpointing -l k8s-app=high-scale-checkpointing "
        f"-c {DRIVER_CONTAINER} --tail=100 --prefix"
    )


def _said(case: Case) -> Iterator[Said]:
    """Yield lines: of reports, which quote replicator.failed, and of the ends of the driver's and trainer's logs."""
    latest = _latest_attempt(case)
    for report in latest:
        text = report.get("replicator_failed")
        for line in alarming(str(text)) if text else ():
            yield Said(f"replicator.failed of node {report.get('node') or report.get('rank')}", line, True)
    run = case.target.run
    for place, text in sorted(case.evidence.logs.items()):
        if place.endswith(f"/{DRIVER_CONTAINER}"):
            for line in alarming(text):
                if not run or f"job={run} " in line or "job= " in line:
                    yield Said(place, line, "[CRT]" in line or "[CRI" in line)
        else:
            for line in text.splitlines():
                if "the replicator failed:" in line or "Replicator fatal errors" in line:
                    yield Said(place, line, True)


def _latest_attempt(case: Case) -> list[dict[str, object]]:
    attempts = case.evidence.all("attempts")
    if not attempts:
        return []
    newest = max((int(each.get("launch") or 0), int(each.get("restart") or 0)) for each in attempts)
    return [each for each in attempts if (int(each.get("launch") or 0), int(each.get("restart") or 0)) == newest]


def _something_to_restore(case: Case) -> bool:
    folder = case.evidence.one("run-folder") or {}
    last = folder.get("last_known_good")
    fresh = [each for each in _latest_attempt(case) if each.get("restored_tier") == "fresh"]
    started = max((str(each.get("first_step_at") or "") for each in fresh), default="")
    # A backup that was made since the fresh start was not there to be restored.
    return bool(last and fresh and started and str(folder.get("last_known_good_at") or "") < started)
