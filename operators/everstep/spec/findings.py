"""What is wrong with an input or a cluster, said so that somebody can act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeVar, cast

First = TypeVar("First")
Second = TypeVar("Second")


class Severity(StrEnum):
    """How much a finding matters: only an error stops what was asked for."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One observation: the object, what was found there, what was expected and how to get there."""

    severity: Severity
    object: str
    found: str
    expected: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        parts = [f"{self.severity}: {self.object}: {self.found}"]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.remedy:
            parts.append(f"remedy: {self.remedy}")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, str]:
        """Return plain strings, for XCom and JSON."""
        return {key: str(value) for key, value in asdict(self).items()}

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Finding:
        """Return what `as_dict` gave."""
        return cls(Severity(data["severity"]), data["object"], data["found"], data["expected"], data["remedy"])


class FindingsError(ValueError):
    """Something can't go on. Carries every finding, not only the first, and prints them all."""

    def __init__(self, title: str, findings: Iterable[Finding]) -> None:
        self.title = title
        self.findings = tuple(findings)
        errors = errors_of(self.findings)
        lines = [f"{title}: {len(errors)} error{'' if len(errors) == 1 else 's'}"]
        lines += [f"  - {finding}" for finding in self.findings]
        super().__init__("\n".join(lines))


def error(object: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """Build a finding that stops the work."""
    return Finding(Severity.ERROR, object, found, expected, remedy)


def warning(object: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """Build a finding that is worth reading and stops nothing."""
    return Finding(Severity.WARNING, object, found, expected, remedy)


def note(object: str, found: str, expected: str = "", remedy: str = "") -> Finding:
    """Build a finding that says how things stand."""
    return Finding(Severity.NOTE, object, found, expected, remedy)


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that stop the work."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def all_of(one: Callable[[], First], other: Callable[[], Second]) -> tuple[First, Second]:
    """Return what both readings return. Raises FindingsError with the findings of both, not only of the first."""
    refusals: list[FindingsError] = []
    values: list[First | Second] = []
    for read in (one, other):
        try:
            values.append(read())
        except FindingsError as refusal:
            refusals.append(refusal)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise FindingsError(
            " and ".join(each.title for each in refusals), [finding for each in refusals for finding in each.findings]
        )
    return cast("tuple[First, Second]", tuple(values))


def raise_on_errors(title: str, findings: Iterable[Finding]) -> None:
    """Raise FindingsError with all findings when one of them is an error."""
    findings = tuple(findings)
    if errors_of(findings):
        raise FindingsError(title, findings)
