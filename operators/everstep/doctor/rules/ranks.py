"""Ranks: given to a JobSet of one certain shape only; others wait for jax-init-info.txt in vain. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.launch import labels
from everstep.spec.findings import Severity

_WAITS = re.compile(r"jax-init-info|has not given .*rank|handshake", re.IGNORECASE)

SYMPTOMS = (
    Symptom("ranks-not-given", "the add-on gives the run's processes no ranks", ("run-failed", "restarts-in-vain")),
    Symptom("topology-unknown", "the JobSet does not ask for whole slices"),
)


def shape(case: Case) -> Iterator[Diagnosis]:
    """Is the JobSet one that the add-on gives ranks to?"""
    jobset = case.jobset
    if jobset is None:
        return
    spec, metadata = jobset.get("spec") or {}, jobset["metadata"]
    replicated = spec.get("replicatedJobs") or []
    with_volume = [one for one in replicated if _has_volume(one)]
    said = _said(case)
    why = ""
    if len(replicated) != 1 and with_volume:
        names = ", ".join(str(one.get("name")) for one in replicated)
        why = f"its JobSet has {len(replicated)} replicated jobs ({names}), and ranks are given only where there is one"
    elif replicated and not with_volume and said:
        why = f"its pods have no volume of the driver {labels.CHECKPOINT_DRIVER}"
    if why:
        yield Diagnosis(
            "ranks-not-given",
            f"JobSet {metadata.get('namespace')}/{metadata.get('name')}",
            f"{why}: whoever waits there for jax-init-info.txt waits in vain",
            (quote(f"spec.replicatedJobs: {[one.get('name') for one in replicated]}"), *said[:2]),
            (
                "put all slices into one replicated job with the checkpoint volume (everstep launches it so), or don't "
                "wait for that file: use_mtc_process_ids=False in Orbax, as Pathways runs have to",
            ),
            severity=Severity.ERROR if said else Severity.WARNING,
            confidence=Confidence.CERTAIN if said else Confidence.LIKELY,
        )
    annotations = metadata.get("annotations") or {}
    if with_volume and labels.EXCLUSIVE_TOPOLOGY not in annotations and len(replicated) == 1:
        yield Diagnosis(
            "topology-unknown",
            f"JobSet {metadata.get('namespace')}/{metadata.get('name')}",
            "without the annotation for exclusive placement slices share node pools, and ranks follow no topology",
            (f"annotation {labels.EXCLUSIVE_TOPOLOGY} is absent",),
            (f"add the annotation {labels.EXCLUSIVE_TOPOLOGY}: {labels.NODE_POOL} to the JobSet (not to its pods)",),
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


RULES = (shape,)


def _has_volume(replicated: dict[str, Any]) -> bool:
    job = (replicated.get("template") or {}).get("spec") or {}
    pod = (job.get("template") or {}).get("spec") or {}
    return any(
        (volume.get("csi") or {}).get("driver") == labels.CHECKPOINT_DRIVER for volume in pod.get("volumes") or []
    )


def _said(case: Case) -> list[str]:
    return [
        quote(f"{place}: {line}")
        for place, text in sorted(case.evidence.logs.items())
        if not place.endswith("/replication-worker")
        for line in text.splitlines()
        if _WAITS.search(line)
    ]
