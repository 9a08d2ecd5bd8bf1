"""What to do about a run whose JobSet may be there already. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everstep.spec.findings import Finding, error
from everstep.watch.run_state import Phase, RunState


class Action(StrEnum):
    """What launch does next."""

    CREATE = "create"
    ATTACH = "attach"
    TAKE_VERDICT = "take verdict"
    REPLACE = "replace"
    AWAIT_DELETION = "await deletion"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Decision:
    """An action and the sentence that explains it; findings when it is a refusal."""

    action: Action
    why: str
    finding: Finding | None = None


def decide(state: RunState | None, *, run: str, holder: str, spec_hash: str, replace_changed: bool = False) -> Decision:
    """Return what to do, given the JobSet of the run's name as it is now.

    :param holder: who launches; a JobSet of the same holder is the one of an earlier try
    :param replace_changed: replace a live JobSet whose spec is not today's, instead of refusing
    """
    if state is None:
        return Decision(Action.CREATE, "there is no JobSet of that name")
    where = f"JobSet {state.namespace}/{state.name}"
    if state.run != run or state.holder is None:
        return _refuse(
            where,
            "an object that Everstep did not launch" if state.run is None else f"a JobSet of run {state.run!r}",
            f"none, or one of run {run!r}",
            "give the run another name, or delete that JobSet if nobody needs it",
        )
    if state.deleting:
        return Decision(Action.AWAIT_DELETION, f"{where} is being deleted")
    if state.stopped is not None:
        return Decision(Action.REPLACE, f"{where} was stopped: {state.stopped}")
    own = state.holder == holder
    if state.phase is Phase.COMPLETED and own:
        return Decision(Action.TAKE_VERDICT, f"{where} has completed")
    if state.is_terminal:
        return Decision(Action.REPLACE, f"{where} has {state.phase}{'' if own else f' for {state.holder}'}")
    if not own:
        return _refuse(
            where,
            f"live ({state.phase}), launched by {state.holder}",
            "no live JobSet of somebody else",
            "wait for it to end, stop it, or give this run another name",
        )
    if state.spec_hash != spec_hash:
        if replace_changed:
            return Decision(Action.REPLACE, f"{where} runs another spec than today's")
        return _refuse(
            where,
            "live, with another spec than the run file has now",
            "the spec that it was launched with, since a JobSet can't be changed",
            "undo the change, wait for the end, or set replace_changed=True: it costs the steps since the last backup",
        )
    return Decision(Action.ATTACH, f"{where} is live ({state.phase})")


def _refuse(where: str, found: str, expected: str, remedy: str) -> Decision:
    return Decision(Action.REFUSE, f"{where}: {found}", error(where, found, expected, remedy))
