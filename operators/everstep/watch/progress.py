"""Does a run that keeps failing get anywhere? Pure.

Failing in the same way twice without a step gained in between is the sign of a failure that restarts can't cure.
Disruptions and lost peers are excused: they are nobody's fault in the run, and come in groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.launch import exit_codes
from everstep.watch.classifier import EXCUSED, Cause, CauseKind

Report = Mapping[str, Any]


@dataclass(frozen=True)
class AttemptEnd:
    """How one attempt ended: why, and the highest step that any node reported."""

    launch: int
    restart: int
    cause: Cause
    last_step: int | None


def end_of(launch: int, restart: int, reports: Sequence[Report], seen: Cause | None = None) -> AttemptEnd:
    """Return how an attempt ended, by its nodes' reports and by what was seen in the cluster."""
    steps = [int(report["last_step"]) for report in reports if isinstance(report.get("last_step"), int)]
    cause = seen if seen is not None and seen.kind is not CauseKind.UNKNOWN else cause_in(reports) or seen
    unknown = Cause(CauseKind.UNKNOWN, "no report and no pod says why")
    return AttemptEnd(launch, restart, cause or unknown, max(steps, default=None))


def cause_in(reports: Iterable[Report]) -> Cause | None:
    """Return the cause that reports give: the earliest end that is not just the loss of a peer."""
    ended = [
        (report["ended"], report)
        for report in reports
        if isinstance(report.get("ended"), Mapping) and report["ended"].get("code") != exit_codes.DONE
    ]
    if not ended:
        return None

    def believed_first(each: tuple[Mapping[str, Any], Report]) -> tuple[bool, str]:
        return (each[0].get("code") in exit_codes.BYSTANDER, str(each[0].get("at", "")))

    end, report = min(ended, key=believed_first)
    code = int(end.get("code", -1))
    reason = str(end.get("reason") or "")
    summary = exit_codes.describe(code) + (f": {reason}" if reason else "")
    return Cause(_kind(code), summary, str(report.get("pod") or ""), str(report.get("node") or ""), code)


def is_stuck(ends: Sequence[AttemptEnd]) -> bool:
    """Say whether the last two attempts failed in the same way, the second one without getting further."""
    if len(ends) < 2:
        return False
    before, last = ends[-2:]
    if last.cause.kind in EXCUSED or before.cause.kind in EXCUSED:
        return False
    if last.cause.kind is CauseKind.UNKNOWN or last.cause.signature != before.cause.signature:
        return False
    return last.last_step is None or before.last_step is None or last.last_step <= before.last_step


def _kind(code: int) -> CauseKind:
    if code in (exit_codes.CONFIGURATION_ERROR, exit_codes.START_REFUSED, exit_codes.NO_RESTORE_POINT):
        return CauseKind.CONFIGURATION
    if code == exit_codes.PEER_LOST:
        return CauseKind.PEER_LOST
    if code in (exit_codes.STOPPED_ON_REQUEST, exit_codes.DONE):
        return CauseKind.STOPPED
    return CauseKind.USER
