"""Failing twice in the same way, and the story that reports tell."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.watch import progress, story
from everstep.watch.classifier import Cause, CauseKind
from everstep.watch.progress import AttemptEnd


def end(kind: CauseKind, step: int | None, code: int | None = None) -> AttemptEnd:
    return AttemptEnd(1, 0, Cause(kind, "s", exit_code=code), step)


@pytest.mark.parametrize(
    ("before", "last", "stuck"),
    [
        (end(CauseKind.USER, 10, 1), end(CauseKind.USER, 10, 1), True),
        (end(CauseKind.USER, 10, 1), end(CauseKind.USER, 5, 1), True),
        (end(CauseKind.USER, None, 1), end(CauseKind.USER, None, 1), True),
        (end(CauseKind.USER, 10, 1), end(CauseKind.USER, 11, 1), False),
        (end(CauseKind.USER, 10, 1), end(CauseKind.USER, 10, 70), False),
        (end(CauseKind.PREEMPTED, 10), end(CauseKind.PREEMPTED, 10), False),
        (end(CauseKind.PEER_LOST, 10, 75), end(CauseKind.PEER_LOST, 10, 75), False),
        (end(CauseKind.USER, 10, 1), end(CauseKind.INFRASTRUCTURE, 10), False),
        (end(CauseKind.UNKNOWN, 10), end(CauseKind.UNKNOWN, 10), False),
    ],
)
def test_stuck(before: AttemptEnd, last: AttemptEnd, stuck: bool) -> None:
    assert progress.is_stuck([end(CauseKind.USER, 1, 3), before, last]) is stuck
    assert not progress.is_stuck([last])


def report(rank: int, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "pod": f"p{rank}", "node": f"n{rank}", **more}


def test_the_cause_in_reports_is_the_first_end_that_is_not_the_loss_of_a_peer() -> None:
    reports = [
        report(0, ended={"code": 75, "reason": "peer lost", "at": "2026-11-29T10:00:00Z"}),
        report(1, ended={"code": 70, "reason": "ValueError: no", "at": "2026-11-29T10:00:05Z"}),
        report(2, ended=None),
    ]
    cause = progress.cause_in(reports)
    assert cause is not None
    assert (cause.kind, cause.pod, cause.exit_code) == (CauseKind.USER, "p1", 70)
    assert "ValueError: no" in cause.summary
    assert progress.cause_in([report(0)]) is None


def test_what_the_cluster_saw_wins_over_reports_unless_it_knows_nothing() -> None:
    reports = [report(0, last_step=7, ended={"code": 75, "at": "t"})]
    seen = Cause(CauseKind.PREEMPTED, "taken")
    assert progress.end_of(1, 0, reports, seen).cause is seen
    ended = progress.end_of(1, 0, reports, Cause(CauseKind.UNKNOWN, "?"))
    assert (ended.cause.kind, ended.last_step) == (CauseKind.PEER_LOST, 7)
    assert progress.end_of(1, 0, []).cause.kind is CauseKind.UNKNOWN


def test_the_story_tells_tiers_steps_and_what_was_done_twice() -> None:
    phases = {"handshake": 1.0, "restore": 0.5, "first_step": 7.0}
    attempts = {
        (1, 0): [report(n, restored_tier="fresh", restored_step=None, last_step=48, phases=phases) for n in range(2)],
        (1, 1): [
            report(0, restored_tier="local", restored_step=45, last_step=90),
            report(1, restored_tier="peer", restored_step=45, last_step=90),
        ],
        (2, 0): [report(n, restored_tier="backup", restored_step=60, last_step=100) for n in range(2)],
    }
    lines = story.tell(attempts)
    assert lines[0] == "launch 1, restart 0: started from nothing, first step after 8.5 s, reached step 48"
    assert lines[1] == "launch 1, restart 1: restored step 45 (1 from local, 1 from peer), reached step 90"
    assert lines[2].startswith("launch 2, restart 0: restored step 60 (2 from backup)")
    assert lines[3] == "3 attempts in all, 33 steps done twice"
    assert [each.tier for each in story.of_attempts(attempts)] == ["fresh", "peer", "backup"]


def test_an_attempt_that_never_restored_is_told_as_such() -> None:
    assert story.tell({(1, 0): []}) == ["launch 1, restart 0: no node has reported a restore"]
