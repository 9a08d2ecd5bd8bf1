"""The doctor at a live cluster: reads what there is a way to, and diagnoses; and adds that to the text of an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from everstep.clients.access import ClusterAccess, GoogleAccess, StorageAccess
from everstep.clients.errors import RemoteError
from everstep.doctor.diagnose import blind_spots, diagnose
from everstep.doctor.diagnosis import Confidence, Diagnosis
from everstep.doctor.evidence import Evidence, Target
from everstep.doctor.gather import LOG_LINES, Sources, gather
from everstep.doctor.redaction import redacted
from everstep.spec.findings import Severity

if TYPE_CHECKING:
    from everstep.provision.site import Site
    from everstep.spec.training import TrainingSpec

log = logging.getLogger(__name__)
Look = Callable[[], tuple[Evidence, list[Diagnosis]]]

# How long a single service is asked again, and how long an error waits for its diagnosis in all.
PATIENCE_SECONDS = 5.0
ATTACHED_SECONDS = 20.0
ATTACHED_DIAGNOSES = 3
ATTACHED_LOG_LINES = 50
# What the error itself says.
_SAID_ALREADY = frozenset({"run-failed", "run-not-started"})


@contextmanager
def opened(
    cluster: ClusterAccess | None,
    storage: StorageAccess | None,
    google: GoogleAccess | None,
    *,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Sources]:
    """Open the ways that are given. One that can't be opened is left out, with the reason."""
    with ExitStack() as stack:
        sources = Sources()
        if cluster is not None:
            sources.cluster = stack.enter_context(cluster.open(patience=patience))
        if storage is not None:
            sources.bucket = lambda name: storage.open(name, patience=patience)
        if google is not None:
            try:
                sources.google = stack.enter_context(google.open(patience=patience))
            except RemoteError as failure:
                sources.why["google"] = failure.message
        yield sources


def examine(
    target: Target, sources: Sources, *, seconds: float = 120.0, log_lines: int = LOG_LINES
) -> tuple[Evidence, list[Diagnosis]]:
    """Read, take secrets out, and diagnose."""
    evidence = redacted(gather(target, sources, seconds=seconds, log_lines=log_lines))
    return evidence, diagnose(evidence)


def examine_run(
    spec: TrainingSpec, *, seconds: float = 120.0, log_lines: int = LOG_LINES
) -> tuple[Evidence, list[Diagnosis]]:
    """Examine a run through the connections of its cluster file."""
    cluster = spec.cluster_spec
    # Who looks the cluster up in GKE may describe it; others have no business there.
    looks_up = cluster.endpoint != "kubeconfig"
    google = GoogleAccess(cluster.google_cloud_connection) if looks_up else None
    with opened(ClusterAccess.of(cluster), StorageAccess.of(cluster), google) as sources:
        return examine(Target.of_run(spec), sources, seconds=seconds, log_lines=log_lines)


def examine_site(site: Site, *, seconds: float = 120.0, log_lines: int = LOG_LINES) -> tuple[Evidence, list[Diagnosis]]:
    """Examine a cluster file's cluster through the provisioner's connections."""
    with opened(site.cluster_access, site.storage_access, site.google_access) as sources:
        return examine(Target.of_cluster(site.spec), sources, seconds=seconds, log_lines=log_lines)


def explained(message: str, look: Look, *, seconds: float = ATTACHED_SECONDS) -> str:
    """Return an error's text with the doctor's first diagnoses below it. Never raises, and never takes much longer.

    :param look: examines; is left alone when it takes too long
    """
    worth = reasons(look, seconds=seconds)
    if not worth:
        return message
    told = [f"- {each.sentence}" + (f". Remedy: {each.remedy[0]}" if each.remedy else "") for each in worth]
    return "\n".join([message, "The doctor says:", *told])


def reasons(look: Look, *, seconds: float = ATTACHED_SECONDS) -> list[Diagnosis]:
    """Return the few diagnoses that can explain why something failed. Never raises, and never takes much longer.

    :param look: examines; is left alone when it takes too long
    """
    found: list[tuple[Evidence, list[Diagnosis]]] = []

    def run() -> None:
        try:
            found.append(look())
        except BaseException as failure:
            log.info("The doctor could not look: %s: %s", type(failure).__name__, failure)

    thread = threading.Thread(target=run, name="everstep-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        log.info("No diagnosis: the doctor %s.", "took too long" if thread.is_alive() else "could not look")
        return []
    evidence, diagnoses = found[0]
    for line in report(evidence, diagnoses):
        log.info("%s", line)
    return [each for each in diagnoses if _is_worth_adding(each)][:ATTACHED_DIAGNOSES]


def _is_worth_adding(diagnosis: Diagnosis) -> bool:
    vague = diagnosis.severity is Severity.NOTE or diagnosis.confidence is Confidence.POSSIBLE
    return not vague and diagnosis.symptom not in _SAID_ALREADY


def report(evidence: Evidence, diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Return diagnoses and what could not be looked at, in lines for people."""
    lines = [line for each in diagnoses for line in each.lines()]
    blind = blind_spots(evidence)
    if blind:
        lines.append("could not be looked at, so nothing is known of:")
        lines += [f"    {spot}" for spot in blind]
    errors = sum(each.severity is Severity.ERROR for each in diagnoses)
    warnings = sum(each.severity is Severity.WARNING for each in diagnoses)
    about = f"run {evidence.target.run}" if evidence.target.run else f"cluster {evidence.target.cluster}"
    if diagnoses:
        lines.append(f"{about}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}")
    else:
        lines.append(f"{about}: nothing wrong was seen" + (", but not everything could be looked at" if blind else ""))
    return lines


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
