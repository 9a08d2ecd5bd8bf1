"""From evidence to diagnoses: every rule is asked, consequences are folded under their causes, the worst comes first.

Pure: neither a cluster nor a clock is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from everstep.doctor.case import Case, Rule
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom
from everstep.doctor.evidence import KINDS, Evidence
from everstep.doctor.rules import (
    bucket,
    cluster,
    configurations,
    controllers,
    driver,
    images,
    nodes,
    placement,
    queue,
    ranks,
    replicator,
    run,
    run_access,
)
from everstep.spec.findings import Severity

# Causes before what usually follows from them.
FAMILIES = (
    cluster,
    controllers,
    bucket,
    configurations,
    driver,
    nodes,
    queue,
    images,
    placement,
    replicator,
    ranks,
    run_access,
    run,
)
SYMPTOMS: dict[str, Symptom] = {symptom.id: symptom for family in FAMILIES for symptom in family.SYMPTOMS}
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.RULES)

_ORDER = {symptom: number for number, symptom in enumerate(SYMPTOMS)}
_SEVERITIES = list(Severity)
_CONFIDENCES = list(Confidence)


def diagnose(evidence: Evidence, now: datetime | None = None) -> list[Diagnosis]:
    """Return what is wrong, the worst first, each with what follows from it. Nothing found does not mean healthy:
    `blind_spots` says what could not be looked at. A rule that odd evidence confuses is one, and the others go on.

    :param now: aware; when the evidence was taken, unless given
    """
    case = Case(evidence, now or evidence.taken)
    return fold(merge([each for rule in RULES for each in _found(rule, case)]))


def blind_spots(evidence: Evidence) -> list[str]:
    """Return what could not be looked at, and why."""
    return [f"{KINDS.get(kind, kind)}: {why}" for kind, why in evidence.unread.items()]


def _found(rule: Rule, case: Case) -> list[Diagnosis]:
    try:
        return list(rule(case))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as confusion:
        name = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
        case.evidence.unread[f"what the rule {name} looks at"] = f"the rule can't read it: {confusion!r}"
        return []


def merge(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Put together what two rules found of one object with the same symptom: the surer one counts."""
    merged: dict[tuple[str, str], Diagnosis] = {}
    for each in sorted(diagnoses, key=lambda one: _CONFIDENCES.index(one.confidence)):
        known = merged.get((each.symptom, each.object))
        if known is None:
            merged[each.symptom, each.object] = each
            continue
        more = tuple(quote for quote in each.evidence if quote not in known.evidence)
        worst = min(known.severity, each.severity, key=_SEVERITIES.index)
        merged[each.symptom, each.object] = Diagnosis(
            known.symptom,
            known.object,
            known.cause,
            known.evidence + more,
            known.remedy,
            worst,
            known.confidence,
        )
    return list(merged.values())


def fold(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Put what follows from something else below that, and order the rest: errors first, causes before symptoms."""
    ranked = sorted(diagnoses, key=_rank)
    below: dict[int, list[Diagnosis]] = {}
    roots = []
    for number, each in enumerate(ranked):
        cause = _cause_of(each, ranked)
        if cause is None:
            roots.append(number)
        else:
            below.setdefault(cause, []).append(each)
    return [
        ranked[number].with_consequences(tuple(_all_below(number, below, ranked)))
        for number in sorted(roots, key=lambda one: _rank(_worst(one, below, ranked)))
    ]


def explains(cause: str, consequence: str) -> bool:
    """Say whether a symptom can follow from another one."""
    return cause != consequence and consequence in SYMPTOMS[cause].explains


def _cause_of(diagnosis: Diagnosis, ranked: Sequence[Diagnosis]) -> int | None:
    for number, other in enumerate(ranked):
        # A passing remark or a mere possibility explains no failure.
        weak = other.severity is Severity.NOTE or other.confidence is Confidence.POSSIBLE
        if explains(other.symptom, diagnosis.symptom) and not weak:
            return number
    return None


def _all_below(
    number: int, below: dict[int, list[Diagnosis]], ranked: Sequence[Diagnosis], seen: frozenset[int] = frozenset()
) -> list[Diagnosis]:
    found = []
    for each in below.get(number, ()):
        found.append(each)
        own = next(index for index, one in enumerate(ranked) if one is each)
        if own not in seen:
            found += _all_below(own, below, ranked, seen | {number, own})
    return found


def _worst(number: int, below: dict[int, list[Diagnosis]], ranked: Sequence[Diagnosis]) -> Diagnosis:
    return min([ranked[number], *_all_below(number, below, ranked)], key=lambda one: _SEVERITIES.index(one.severity))


def _rank(diagnosis: Diagnosis) -> tuple[int, int, int, str]:
    return (
        _SEVERITIES.index(diagnosis.severity),
        _ORDER[diagnosis.symptom],
        _CONFIDENCES.index(diagnosis.confidence),
        diagnosis.object,
    )
