"""What a Job needs next, from the Job and its pods as they are. Pure."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep_sandbox.kubernetes.controllers import conditions
from everstep_sandbox.kubernetes.controllers.conditions import with_condition
from everstep_sandbox.kubernetes.controllers.job import failure_policy, indexes
from everstep_sandbox.kubernetes.controllers.job.pod_template import TRACKING_FINALIZER, is_indexed
from everstep_sandbox.kubernetes.controllers.pods import (
    completion_index,
    finished_at,
    is_deleting,
    is_ready,
    is_terminal,
    phase,
)
from everstep_sandbox.kubernetes.objects import Object, clone, parse_timestamp, timestamp

# A failed pod is replaced after 10 s, then after twice as long each time, at most 10 minutes.
_FIRST_BACK_OFF = 10.0
_LONGEST_BACK_OFF = 600.0


@dataclass(slots=True)
class Decision:
    """Committed in this order: status, releases, deletions, creations."""

    status: Object
    release: list[Object] = field(default_factory=list)
    """Pods that are counted now, or shall never be: their tracking finalizer goes."""
    delete: list[Object] = field(default_factory=list)
    create: list[int | None] = field(default_factory=list)
    """Completion indexes, or None for each pod without one."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    again_in: float | None = None


def is_finished(job: Object) -> bool:
    return conditions.holds(job, "Complete") or conditions.holds(job, "Failed")


def decide(job: Object, pods: Sequence[Object], now: datetime.datetime, *, speed: float) -> Decision:
    """`pods` are all that the Job controls; `speed` divides the back-off of failed pods."""
    return _Pass(job, pods, now, speed).run()


class _Pass:
    def __init__(self, job: Object, pods: Sequence[Object], now: datetime.datetime, speed: float) -> None:
        self.job, self.spec, self.now, self.speed = job, job["spec"], now, speed
        self.status: dict[str, Any] = clone(job.get("status") or {})
        self.decision = Decision(self.status)
        self.indexed = is_indexed(job)
        self.only_failed = replaces_only_failed(job)
        self.pods = pods
        self.active = [pod for pod in pods if not is_terminal(pod) and not is_deleting(pod)]
        self.terminating = [pod for pod in pods if not is_terminal(pod) and is_deleting(pod)]
        self.new = sorted(
            (pod for pod in pods if _is_tracked(pod) and (is_terminal(pod) or self._is_lost(pod))), key=finished_at
        )

    def run(self) -> Decision:
        self.decision.release = [*self.new]
        if is_finished(self.job):
            return self.decision
        self._count()
        failure = self._failure()
        if failure:
            self._fail(*failure)
        elif self._is_complete():
            self._complete()
        elif self.spec.get("suspend"):
            self._suspend()
        else:
            self._resume()
            self._manage()
        deleted = {pod["metadata"]["uid"] for pod in self.decision.delete}
        remaining = [pod for pod in self.active if pod["metadata"]["uid"] not in deleted]
        self.status["active"] = len(remaining)
        self.status["ready"] = sum(map(is_ready, remaining))
        self.status["terminating"] = len(self.terminating) + len(deleted)
        self.status["uncountedTerminatedPods"] = {}
        return self.decision

    def _is_lost(self, pod: Object) -> bool:
        """Deleted pods count as failed at once, unless only failed ones are to be replaced."""
        return not self.only_failed and is_deleting(pod)

    def _count(self) -> None:
        succeeded = [pod for pod in self.new if phase(pod) == "Succeeded"]
        failed = [pod for pod in self.new if phase(pod) != "Succeeded"]
        if self.indexed:
            done = indexes.parse(self.status.get("completedIndexes") or "")
            done |= {index for pod in succeeded if (index := completion_index(pod)) is not None}
            self.done = {index for index in done if index < self.spec["completions"]}
            self.status["completedIndexes"] = indexes.write(self.done)
            self.status["succeeded"] = len(self.done)
        else:
            self.status["succeeded"] = self.status.get("succeeded", 0) + len(succeeded)
        self.policy_failure: str | None = None
        counted = 0
        for pod in failed:
            match = failure_policy.match(self.spec.get("podFailurePolicy"), pod)
            if match and match.action == "FailJob" and self.policy_failure is None:
                self.policy_failure = match.message
            counted += not (match and match.action == "Ignore")
        self.status["failed"] = self.status.get("failed", 0) + counted

    def _failure(self) -> tuple[str, str] | None:
        """Reason and message, where the Job is to fail."""
        target = conditions.find(self.job, "FailureTarget")
        if target:
            return target["reason"], target["message"]
        if self.policy_failure:
            return "PodFailurePolicy", self.policy_failure
        limit = self.spec.get("backoffLimit", 6)
        if self.status["failed"] > limit or self._restarts_exceed(limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is not None and self.status.get("startTime") and not self.spec.get("suspend"):
            left = deadline - (self.now - parse_timestamp(self.status["startTime"])).total_seconds()
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._look_again(left)
        return None

    def _restarts_exceed(self, limit: int) -> bool:
        """With restartPolicy OnFailure the restarts of containers count, since no pod fails."""
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(
            status.get("restartCount", 0)
            for pod in self.active
            for family in ("containerStatuses", "initContainerStatuses")
            for status in (pod.get("status") or {}).get(family) or ()
        )
        return bool(restarts > 0 if limit == 0 else restarts >= limit)

    def _is_complete(self) -> bool:
        completions = self.spec.get("completions")
        if completions is None:
            return bool(self.status["succeeded"]) and not self.active
        return bool(self.status["succeeded"] >= completions)

    def _fail(self, reason: str, message: str) -> None:
        self._condition("FailureTarget", True, reason, message)
        self.decision.delete = [*self.active]
        if not self.active and not self.terminating:
            self._condition("Failed", True, reason, message)
            self.decision.events.append(("Warning", reason, message))

    def _complete(self) -> None:
        text = "Reached expected number of succeeded pods"
        self._condition("SuccessCriteriaMet", True, "CompletionsReached", text)
        self.decision.delete = [*self.active]
        if not self.active and not self.terminating:
            self._condition("Complete", True, "CompletionsReached", text)
            self.status["completionTime"] = timestamp(self.now)
            self.decision.events.append(("Normal", "Completed", "Job completed"))

    def _suspend(self) -> None:
        self._delete_uncounted(self.active)
        if not conditions.holds(self.job, "Suspended"):
            self.decision.events.append(("Normal", "Suspended", "Job suspended"))
        self._condition("Suspended", True, "JobSuspended", "Job suspended")
        self.status.pop("startTime", None)

    def _resume(self) -> None:
        if conditions.holds(self.job, "Suspended"):
            self._condition("Suspended", False, "JobResumed", "Job resumed")
            self.decision.events.append(("Normal", "Resumed", "Job resumed"))
        self.status.setdefault("startTime", timestamp(self.now))

    def _manage(self) -> None:
        """Creates what is missing and deletes what is too much."""
        parallelism = self.spec.get("parallelism", 1)
        present = [*self.active, *(self.terminating if self.only_failed else ())]
        if len(self.active) > parallelism:
            self._delete_uncounted(sorted(self.active, key=lambda pod: completion_index(pod) or 0)[parallelism:])
            return
        room = parallelism - len(present)
        completions = self.spec.get("completions")
        if completions is not None:
            room = min(room, completions - self.status["succeeded"] - len(present))
        if room <= 0 or self._is_backing_off():
            return
        if not self.indexed:
            self.decision.create = [None] * room
            return
        taken = self.done | {index for pod in present if (index := completion_index(pod)) is not None}
        missing = (index for index in range(self.spec["completions"]) if index not in taken)
        self.decision.create = list(itertools.islice(missing, room))

    def _delete_uncounted(self, pods: list[Object]) -> None:
        """Pods that the Job itself takes away are no failures, however they end."""
        self.decision.release.extend(pods)
        self.decision.delete = [*pods]

    def _is_backing_off(self) -> bool:
        failures = self.status["failed"]
        ended = [finished_at(pod) for pod in self.pods if phase(pod) == "Failed"]
        if not failures or not ended:
            return False
        wait = min(_FIRST_BACK_OFF * 2 ** (failures - 1), _LONGEST_BACK_OFF) / self.speed
        left = wait - (self.now - max(ended)).total_seconds()
        if left <= 0:
            return False
        self._look_again(left)
        return True

    def _condition(self, kind: str, status: bool, reason: str, message: str) -> None:
        self.status["conditions"] = with_condition(
            self.status.get("conditions") or [],
            kind,
            status,
            self.now,
            reason=reason,
            message=message,
            probe_time=True,
        )

    def _look_again(self, seconds: float) -> None:
        known = self.decision.again_in
        self.decision.again_in = seconds if known is None else min(known, seconds)


def replaces_only_failed(job: Object) -> bool:
    """podReplacementPolicy Failed, which a podFailurePolicy implies."""
    default = "Failed" if job["spec"].get("podFailurePolicy") else "TerminatingOrFailed"
    return bool((job["spec"].get("podReplacementPolicy") or default) == "Failed")


def _is_tracked(pod: Object) -> bool:
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())
