"""Carries steps out: look, change one thing, look again, until nothing is left to do.

Nothing is remembered between two looks. So a step that is killed anywhere and started again goes on where things
stand, and a second run of a finished step changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.clients.errors import RemoteError
from everstep.provision.changes import Change, Look, Mode, Step, Waiting
from everstep.spec.findings import Finding, FindingsError, error, raise_on_errors

# A step that still finds the same change after it was made this often is not getting anywhere.
SAME_CHANGE_AT_MOST = 3


@dataclass
class Report:
    """What steps found and did."""

    mode: Mode
    findings: list[Finding] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    left: list[Change] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom and JSON."""
        return {
            "mode": str(self.mode),
            "findings": [finding.as_dict() for finding in self.findings],
            "done": self.done,
            "left": [change.as_dict() for change in self.left],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Report:
        """Return what `as_dict` gave, without what was left: that is looked at anew."""
        return cls(Mode(data["mode"]), [Finding.of(one) for one in data["findings"]], list(data["done"]))


def survey(steps: Iterable[Step], mode: Mode) -> Report:
    """Look at every step and change nothing. Never raises for what a step found: a check shows all of it."""
    report = Report(mode)
    for step in steps:
        try:
            look = step.look()
        except FindingsError as refusal:
            report.findings += refusal.findings
            continue
        except RemoteError as failure:
            report.findings.append(error(step.title, failure.message, "an answer"))
            continue
        _take_findings(report, look)
        report.left += look.changes
    return report


def advance(step: Step, report: Report, tell: Callable[[str], None]) -> Waiting | None:
    """Make what changes can be made now. Return what has to be waited for before it is called again; None when done.

    Raises FindingsError, before the next change, when a look finds an error.
    """
    while True:
        look = step.look()
        _take_findings(report, look)
        raise_on_errors(f"{step.title} can't be provisioned", look.findings)
        if look.waiting is not None:
            tell(f"{step.title}: waiting for {look.waiting.what}")
            return look.waiting
        if not look.changes:
            tell(f"{step.title}: as the cluster file says")
            return None
        change = look.changes[0]
        _refuse_endless(step, change, report)
        tell(f"{step.title}: {change}")
        waiting = change.act()
        report.done.append({key: value for key, value in change.as_dict().items() if key not in _NOT_KEPT})
        if waiting is not None:
            tell(f"{step.title}: waiting for {waiting.what}")
            return waiting


# Commands and HCL are of use before a change, not after it.
_NOT_KEPT = ("commands", "terraform")


def _take_findings(report: Report, look: Look) -> None:
    report.findings += [finding for finding in look.findings if finding not in report.findings]


def _refuse_endless(step: Step, change: Change, report: Report) -> None:
    same = [one for one in report.done if (one["object"], one["action"]) == (change.object, change.action)]
    if len(same) >= SAME_CHANGE_AT_MOST and same[-1]["wanted"] == change.wanted:
        raise FindingsError(
            f"{step.title} gets nowhere",
            [error(change.object, f"{change.found}, after {len(same)} tries of {change.action!r}", change.wanted)],
        )
