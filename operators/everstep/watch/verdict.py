"""What a run came to, from a fresh read of its JobSet. Pure.

Only the condition Completed is success. A JobSet that is gone, or was replaced by another one, was cancelled: a
failure, whoever did it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from everstep.watch import classifier, pods
from everstep.watch.classifier import Cause
from everstep.watch.pods import PodState
from everstep.watch.run_state import Phase, RunState


class Outcome(StrEnum):
    """The three ways for a run to end."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Verdict:
    """An outcome with the reason for it."""

    outcome: Outcome
    message: str
    cause: Cause | None = None

    def __str__(self) -> str:
        return f"{self.outcome}: {self.message}"


def judge(state: RunState | None, uid: str, failed_pods: Iterable[PodState] = ()) -> Verdict | None:
    """Return the verdict on the JobSet with that uid; None while it goes on.

    :param state: the JobSet of that name as read just now, None when there is none
    :param failed_pods: pods of the JobSet, for the cause of a failure
    """
    if state is None:
        return Verdict(Outcome.CANCELLED, "the JobSet was deleted by somebody before it ended")
    if state.uid != uid:
        return Verdict(Outcome.CANCELLED, f"the JobSet was replaced by another one (launch {state.launch})")
    if state.phase is Phase.COMPLETED:
        return Verdict(Outcome.COMPLETED, state.message or "all slices completed")
    if state.phase is Phase.FAILED:
        cause = cause_of_end(state, failed_pods)
        return Verdict(Outcome.FAILED, str(cause), cause)
    if state.deleting:
        return Verdict(Outcome.CANCELLED, "the JobSet is being deleted by somebody")
    return None


def cause_of_end(state: RunState, every_pod: Iterable[PodState]) -> Cause:
    """Return why the last attempt failed: by its pods, or by what the JobSet quotes when they are gone."""
    cause = classifier.classify(pods.of_attempt(every_pod, state.restarts))
    if cause.kind is classifier.CauseKind.UNKNOWN:
        quoted = classifier.of_message(state.message)
        if quoted is not None:
            return quoted
    if cause is classifier.UNKNOWN and state.message:
        return Cause(cause.kind, f"{state.reason}: {state.message}" if state.reason else state.message)
    return cause
