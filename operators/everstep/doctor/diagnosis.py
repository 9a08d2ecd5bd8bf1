"""What is wrong, why, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from everstep.spec.findings import Severity

# Of each diagnosis so many quotations are shown; more only repeat them.
QUOTED = 4
LONGEST_QUOTE = 400


class Confidence(StrEnum):
    """How sure the cause is, given what could be seen."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True)
class Symptom:
    """A kind of trouble that the doctor knows.

    :param id: its name in outputs, tests and the table of the documentation
    :param title: what it is, in a few words
    :param explains: symptoms that follow from it, and are shown below it
    """

    id: str
    title: str
    explains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """One thing that is wrong.

    :param symptom: id of a Symptom
    :param object: the object in trouble, as findings name it
    :param cause: one sentence that a tired person understands
    :param evidence: what was seen, quoted
    :param remedy: commands to paste, or sentences where no command helps
    :param consequences: what follows from it
    """

    symptom: str
    object: str
    cause: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    confidence: Confidence = Confidence.CERTAIN
    consequences: tuple[Diagnosis, ...] = ()

    def with_consequences(self, consequences: tuple[Diagnosis, ...]) -> Diagnosis:
        """Return this with what follows from it."""
        return replace(self, consequences=consequences)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom and JSON."""
        return {
            "symptom": self.symptom,
            "severity": str(self.severity),
            "confidence": str(self.confidence),
            "object": self.object,
            "cause": self.cause,
            "evidence": list(self.evidence),
            "remedy": list(self.remedy),
            "consequences": [each.as_dict() for each in self.consequences],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Return what `as_dict` gave."""
        return cls(
            symptom=data["symptom"],
            object=data["object"],
            cause=data["cause"],
            evidence=tuple(data["evidence"]),
            remedy=tuple(data["remedy"]),
            severity=Severity(data["severity"]),
            confidence=Confidence(data["confidence"]),
            consequences=tuple(cls.of(each) for each in data["consequences"]),
        )

    @property
    def sentence(self) -> str:
        """Return object and cause in one line, with how sure that is unless it is certain."""
        sure = "" if self.confidence is Confidence.CERTAIN else f" ({self.confidence})"
        return f"{self.object}: {self.cause}{sure}"

    def lines(self) -> list[str]:
        """Return everything, for people."""
        told = [f"{self.severity}: {self.sentence}  [{self.symptom}]"]
        told += [f"    seen: {quote}" for quote in self.evidence[:QUOTED]]
        if len(self.evidence) > QUOTED:
            told.append(f"    seen: … and {len(self.evidence) - QUOTED} more")
        told += [f"    do:   {step}" for step in self.remedy]
        told += [f"    so:   {each.sentence}  [{each.symptom}]" for each in self.consequences]
        return told


def quote(text: Any) -> str:
    """Return a text in one line of bearable length."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST_QUOTE else line[: LONGEST_QUOTE - 1] + "…"
