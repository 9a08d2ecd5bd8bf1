"""Carries steps out: look, change one thing, look again, until nothing is left to do.

Nothing is remembered between two looks. So a step that is killed anywhere and started again goes on where things
stand, and a second run of a finished step changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.clients.errors import Conflict, NotConfigured, RemoteError, Unauthenticated, Unavailable
from everstep.provision.changes import Change, Look, Mode, Step, Waiting
from everstep.spec.findings import Finding, FindingsError, error, raise_on_errors, warning

# A step that still finds the same change after it was made this often is not getting anywhere.
SAME_CHANGE_AT_MOST = 3


@dataclass
class Report:
    """What steps found and did.

    :param seen: by step, what the latest look at it found: an older one is no longer true
    :param waiting: what was under way when nothing was to be waited for, in words
    """

    mode: Mode
    seen: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)
    left: list[Change] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Return what was found, in the order of the steps, each once."""
        return list(dict.fromkeys(finding for found in self.seen.values() for finding in found))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom and JSON."""
        return {
            "mode": str(self.mode),
            "findings": [{**one.as_dict(), "step": step} for step, found in self.seen.items() for one in found],
            "done": self.done,
            "left": [change.as_dict() for change in self.left],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Report:
        """Return what `as_dict` gave, without what was left: that is looked at anew."""
        seen: dict[str, tuple[Finding, ...]] = {}
        for one in data["findings"]:
            seen[one["step"]] = (*seen.get(one["step"], ()), Finding.of(one))
        return cls(Mode(data["mode"]), seen, list(data["done"]))


def survey(steps: Iterable[Step], mode: Mode) -> Report:
    """Look at every step and change nothing. Never raises for what a step found: a check shows all of it.

    Where nobody answers, the steps behind are not tried, since each would take as long.
    """
    report = Report(mode)
    failures: dict[str, RemoteError] = {}
    left_out: list[str] = []
    for step in steps:
        if any(isinstance(failure, Unavailable) for failure in failures.values()):
            left_out.append(step.title)
            continue
        try:
            look = step.look()
        except FindingsError as refusal:
            report.seen[step.title] = refusal.findings
        except RemoteError as failure:
            failures[step.title] = failure
        else:
            report.seen[step.title] = (*look.findings, *_not_done(step, look))
            report.left += look.changes
            report.waiting += [look.waiting.what] if look.waiting is not None else []
    report.seen = {**_told(failures), **report.seen}
    if left_out:
        told = error(", ".join(left_out), "not looked at, since there was no answer before", "a look")
        report.seen[left_out[0]] = (told,)
    return report


def advance(step: Step, report: Report, tell: Callable[[str], None]) -> Waiting | None:
    """Make what changes can be made now. Return what has to be waited for before it is called again; None when done.

    Raises FindingsError, before the next change, when a look finds an error.
    """
    refused: Counter[tuple[str, str]] = Counter()
    while True:
        look = step.look()
        report.seen[step.title] = look.findings
        raise_on_errors(f"{step.title} can't be provisioned", look.findings)
        if look.waiting is not None:
            tell(f"{step.title}: waiting for {look.waiting.what}")
            return look.waiting
        if not look.changes:
            tell(f"{step.title}: nothing to change")
            return None
        change = look.changes[0]
        _refuse_endless(step, change, report)
        tell(f"{step.title}: {change}")
        try:
            waiting = change.act()
        except Conflict as refusal:
            # Somebody else was faster, or a try of this one whose answer was lost: the next look tells what there is.
            refused[change.object, change.action] += 1
            if refused[change.object, change.action] >= SAME_CHANGE_AT_MOST:
                raise _nowhere(step, change, refusal.message) from refusal
            tell(f"{step.title}: {refusal.message}: looking again")
            continue
        report.done.append({key: value for key, value in change.as_dict().items() if key not in _NOT_KEPT})
        if waiting is not None:
            tell(f"{step.title}: waiting for {waiting.what}")
            return waiting


# Commands and HCL are of use before a change, not after it.
_NOT_KEPT = ("commands", "terraform")


def _not_done(step: Step, look: Look) -> tuple[Finding, ...]:
    if look.waiting is None:
        return ()
    remedy = "wait, or run it with --mode apply, which waits too"
    return (warning(step.title, f"not done yet: it waits for {look.waiting.what}", "nothing under way", remedy),)


def _told(failures: Mapping[str, RemoteError]) -> dict[str, tuple[Finding, ...]]:
    """Return the findings of steps that could not look, by step; one for all that failed alike."""
    alike: dict[str, list[str]] = {}
    for title, failure in failures.items():
        alike.setdefault(failure.message, []).append(title)
    return {
        titles[0]: (error(", ".join(titles), message, "an answer", _remedy(failures[titles[0]])),)
        for message, titles in alike.items()
    }


def unanswered(step: Step, failure: RemoteError) -> Finding:
    """Return the finding of a step that got no answer, or a refusal."""
    return error(step.title, failure.message, "an answer", _remedy(failure))


def _remedy(failure: RemoteError) -> str:
    if isinstance(failure, NotConfigured | Unauthenticated):
        login = "gcloud auth application-default login, or " if "redential" in failure.message else ""
        return f"{login}mend the kubeconfig or the connection that it names"
    if isinstance(failure, Unavailable):
        return "run it again when the network is back"
    return "the rights of the provisioner: everstep permissions --for provisioner" if failure.status == 403 else ""


def _refuse_endless(step: Step, change: Change, report: Report) -> None:
    same = [one for one in report.done if (one["object"], one["action"]) == (change.object, change.action)]
    if len(same) >= SAME_CHANGE_AT_MOST and same[-1]["wanted"] == change.wanted:
        raise _nowhere(step, change, f"after {len(same)} tries of {change.action!r}")


def _nowhere(step: Step, change: Change, why: str) -> FindingsError:
    return FindingsError(f"{step.title} gets nowhere", [error(change.object, f"{change.found}; {why}", change.wanted)])
