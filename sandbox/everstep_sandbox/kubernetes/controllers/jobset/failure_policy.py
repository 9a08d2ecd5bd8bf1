"""The failurePolicy of a JobSet: which rule decides about failed Jobs, and what comes of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from everstep_sandbox.kubernetes.controllers import conditions
from everstep_sandbox.kubernetes.controllers.jobset import keys
from everstep_sandbox.kubernetes.objects import Object

RESTART = "RestartJobSet"
RESTART_FREE = "RestartJobSetAndIgnoreMaxRestarts"
FAIL = "FailJobSet"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`fail` with the condition's reason and message, or `restart` with the event's."""

    kind: Literal["fail", "restart"]
    reason: str
    message: str
    counts: bool = False
    """Whether the restart is taken from maxRestarts."""


def outcome(jobset: Object, failed: Sequence[Object]) -> Outcome:
    """What becomes of a set with at least one failed Job of its current attempt."""
    policy = jobset["spec"].get("failurePolicy")
    first = min(failed, key=_failed_at)
    if policy is None:
        return Outcome("fail", "FailedJobs", _about("jobset failed due to one or more job failures", first))
    action = RESTART
    for rule in policy.get("rules") or ():
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            action, first = rule["action"], min(matching, key=_failed_at)
            break
    if action == FAIL:
        text = "applying FailJobSet failure policy action"
        return Outcome("fail", "FailJobSetFailurePolicyAction", _about(text, first))
    restarts = (jobset.get("status") or {}).get("restartsCountTowardsMax", 0)
    if action != RESTART_FREE and restarts >= policy.get("maxRestarts", 0):
        text = "jobset failed due to reaching max number of restarts"
        return Outcome("fail", "ReachedMaxRestarts", _about(text, first))
    message = _about(f"applying {action} failure policy action", first)
    return Outcome("restart", f"{action}FailurePolicyAction", message, counts=action != RESTART_FREE)


def _matches(rule: Object, job: Object) -> bool:
    condition: dict[str, Any] = conditions.find(job, "Failed") or {}
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    if reasons and condition.get("reason") not in reasons:
        return False
    if patterns and not any(re.search(pattern, condition.get("message", "")) for pattern in patterns):
        return False
    return not targets or job["metadata"]["labels"].get(keys.REPLICATED_JOB) in targets


def _failed_at(job: Object) -> tuple[str, str]:
    condition: dict[str, Any] = conditions.find(job, "Failed") or {}
    return str(condition.get("lastTransitionTime", "")), str(job["metadata"]["name"])


def _about(text: str, job: Object) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"
