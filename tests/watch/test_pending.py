"""Why pods don't run yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from everstep.watch import pending
from everstep.watch.classifier import CauseKind
from everstep.watch.pods import PodState

POD = PodState(name="lm-slice-0-0-x", uid="u", node="", attempt=0, slice=0, index=0, phase="Pending", scheduled=False)


def refused(name: str, at: str, job: str = "lm-slice-0") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Job", "name": job},
        "reason": "FailedCreate",
        "message": f'Error creating: pods "{name}" is forbidden: no PriorityClass with name nope was found',
        "lastTimestamp": at,
    }


def test_a_refusal_stands_once_whatever_the_pods_were_called() -> None:
    events = [refused("lm-slice-0-0-a", "1"), refused("lm-slice-0-0-b", "2"), refused("x", "3", "another-slice-0")]
    expected = "Error creating: a pod is forbidden: no PriorityClass with name nope was found"
    assert pending.refusals(events, "lm") == [expected]
    assert pending.explain([], events, "lm", 4) == [f"no pod can be made: {expected}"]
    cause = pending.never_starts([], events, "lm")
    assert cause is not None
    assert cause.kind is CauseKind.CONFIGURATION


def test_refusals_are_passing_noise_while_there_are_pods() -> None:
    assert pending.never_starts([POD], [refused("a", "1")], "lm") is None


def test_what_pods_wait_for_is_counted() -> None:
    pods = [
        replace(POD, unschedulable="0/6 nodes are available"),
        replace(POD, unschedulable="0/6 nodes are available"),
        replace(POD, waiting_reason="ImagePullBackOff", waiting_message="not found"),
        replace(POD, waiting_reason="ContainerCreating"),
    ]
    assert pending.explain(pods, [], "lm", 5) == [
        "4 of 5 pods wait",
        "2 x no node: 0/6 nodes are available",
        "1 x ImagePullBackOff: not found",
    ]
    cause = pending.never_starts(pods, [], "lm")
    assert cause is not None
    assert "ImagePullBackOff: not found" in cause.summary


def test_all_well_says_nothing() -> None:
    assert pending.explain([], [], "lm", 5) == []
