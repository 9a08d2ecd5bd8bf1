"""What launch does about each state that a JobSet of the run's name can be in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.launch.decision import Action, decide
from everstep.watch.run_state import Phase, RunState

STATE = RunState(
    name="lm", namespace="default", uid="u", resource_version="1", phase=Phase.RUNNING, launch=1, restarts=0,
    restarts_counted=0, jobs=2, ready_jobs=2, holder="me", run="lm", spec_hash="a",
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "holder", "spec_hash", "action"),
    [
        (None, "me", "a", Action.CREATE),
        (STATE, "me", "a", Action.ATTACH),
        (replace(STATE, phase=Phase.STARTING), "me", "a", Action.ATTACH),
        (replace(STATE, phase=Phase.SUSPENDED), "me", "a", Action.ATTACH),
        (replace(STATE, phase=Phase.SUSPENDED, stopped="no progress"), "me", "a", Action.REPLACE),
        (replace(STATE, phase=Phase.COMPLETED), "me", "a", Action.TAKE_VERDICT),
        (replace(STATE, phase=Phase.COMPLETED), "other", "a", Action.REPLACE),
        (replace(STATE, phase=Phase.FAILED), "me", "a", Action.REPLACE),
        (replace(STATE, phase=Phase.FAILED), "other", "a", Action.REPLACE),
        (replace(STATE, phase=Phase.DELETING, deleting=True), "me", "a", Action.AWAIT_DELETION),
        (replace(STATE, phase=Phase.COMPLETED, deleting=True), "me", "a", Action.AWAIT_DELETION),
        (STATE, "other", "a", Action.REFUSE),
        (STATE, "me", "b", Action.REFUSE),
        (replace(STATE, run=None), "me", "a", Action.REFUSE),
        (replace(STATE, run="else"), "me", "a", Action.REFUSE),
        (replace(STATE, holder=None), "me", "a", Action.REFUSE),
    ],
)
def test_decisions(state: RunState | None, holder: str, spec_hash: str, action: Action) -> None:
    decision = decide(state, run="lm", holder=holder, spec_hash=spec_hash)
    assert decision.action is action
    assert (decision.finding is not None) == (action is Action.REFUSE)


def test_a_changed_spec_replaces_when_that_is_asked_for() -> None:
    assert decide(STATE, run="lm", holder="me", spec_hash="b", replace_changed=True).action is Action.REPLACE
