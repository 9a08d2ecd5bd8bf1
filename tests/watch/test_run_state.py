"""State and verdict: only a terminal condition that is true, read afresh, ends a run."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.watch import pods, run_state, verdict
from everstep.watch.run_state import Phase
from everstep.watch.verdict import Outcome


def jobset(status: dict[str, Any] | None = None, *, deleted: bool = False, suspend: bool = False) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "lm",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": "5",
            "labels": {"everstep.dev/run": "lm"},
            "annotations": {"everstep.dev/launch": "2", "everstep.dev/holder": "me"},
            **({"deletionTimestamp": "2026-11-29T10:00:00Z"} if deleted else {}),
        },
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 2}], **({"suspend": True} if suspend else {})},
        "status": status or {},
    }


def condition(kind: str, status: str = "True", message: str = "m") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "t"}


@pytest.mark.parametrize(
    ("status", "options", "phase"),
    [
        ({}, {}, Phase.STARTING),
        ({"replicatedJobsStatus": [{"name": "slice", "ready": 1}]}, {}, Phase.STARTING),
        ({"replicatedJobsStatus": [{"name": "slice", "ready": 2}]}, {}, Phase.RUNNING),
        ({"replicatedJobsStatus": [{"name": "slice", "ready": 1, "succeeded": 1}]}, {}, Phase.RUNNING),
        ({"conditions": [condition("Completed")]}, {}, Phase.COMPLETED),
        ({"conditions": [condition("Failed")]}, {}, Phase.FAILED),
        ({"conditions": [condition("Completed", "False"), condition("Failed", "False")]}, {}, Phase.STARTING),
        ({"terminalState": "Failed"}, {}, Phase.FAILED),
        ({}, {"deleted": True}, Phase.DELETING),
        ({"conditions": [condition("Completed")]}, {"deleted": True}, Phase.COMPLETED),
        ({}, {"suspend": True}, Phase.SUSPENDED),
        ({"conditions": [condition("Suspended")]}, {}, Phase.STARTING),
    ],
)
def test_phases(status: dict[str, Any], options: dict[str, bool], phase: Phase) -> None:
    assert run_state.of_jobset(jobset(status, **options)).phase is phase


def test_counts_and_marks_are_read() -> None:
    state = run_state.of_jobset(jobset({"restarts": 4, "restartsCountTowardsMax": 1}))
    assert (state.launch, state.restarts, state.restarts_counted, state.jobs) == (2, 4, 1, 2)
    assert (state.run, state.holder) == ("lm", "me")
    assert "restart 4" in str(state)


def test_a_jobset_of_somebody_else_has_no_launch() -> None:
    foreign = jobset()
    foreign["metadata"]["annotations"] = None
    state = run_state.of_jobset(foreign)
    assert (state.launch, state.holder) == (None, None)


@pytest.mark.parametrize(
    ("state", "uid", "outcome"),
    [
        (None, "u", Outcome.CANCELLED),
        (jobset(), "other", Outcome.CANCELLED),
        (jobset(deleted=True), "u", Outcome.CANCELLED),
        (jobset({"conditions": [condition("Completed")]}), "u", Outcome.COMPLETED),
        (jobset({"conditions": [condition("Completed")]}, deleted=True), "u", Outcome.COMPLETED),
        (jobset({"conditions": [condition("Completed")]}), "other", Outcome.CANCELLED),
        (jobset({"conditions": [condition("Failed")]}), "u", Outcome.FAILED),
        (jobset(), "u", None),
        (jobset(suspend=True), "u", None),
    ],
)
def test_verdicts(state: dict[str, Any] | None, uid: str, outcome: Outcome | None) -> None:
    judged = verdict.judge(None if state is None else run_state.of_jobset(state), uid)
    assert (judged.outcome if judged else None) is outcome


def test_a_failure_is_explained_by_pods_and_without_them_by_the_condition() -> None:
    quoted = (
        "Container trainer for pod default/lm-slice-0-0-x failed with exit code 65 matching FailJob rule at index 0"
    )
    state = run_state.of_jobset(jobset({"conditions": [condition("Failed", message=quoted)]}))
    judged = verdict.judge(state, "u")
    assert judged is not None
    assert judged.cause is not None
    assert (judged.cause.exit_code, judged.cause.pod) == (65, "lm-slice-0-0-x")
    oom = pods.of_pod(
        {
            "metadata": {"name": "p", "uid": "p"},
            "status": {
                "phase": "Failed",
                "containerStatuses": [
                    {"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ],
            },
        }
    )
    judged = verdict.judge(state, "u", [oom])
    assert judged is not None
    assert "OOMKilled" in judged.message
