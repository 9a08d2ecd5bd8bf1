"""What a JobSet needs next, from the set and its Jobs as they are. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep_sandbox.kubernetes.controllers import conditions
from everstep_sandbox.kubernetes.controllers.conditions import with_condition
from everstep_sandbox.kubernetes.controllers.jobset import keys
from everstep_sandbox.kubernetes.controllers.jobset.child_jobs import child_jobs, replicas, resumption
from everstep_sandbox.kubernetes.controllers.jobset.failure_policy import outcome
from everstep_sandbox.kubernetes.objects import Object, clone


@dataclass(slots=True)
class Decision:
    """Committed in this order: deletions, status, events, suspensions, creations."""

    status: Object
    delete: list[Object] = field(default_factory=list)
    suspend: list[tuple[Object, Object]] = field(default_factory=list)
    """Jobs with the changes of their specs that suspend or resume them."""
    create: list[Object] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    needs_service: bool = False


def is_finished(jobset: Object) -> bool:
    return conditions.holds(jobset, "Completed") or conditions.holds(jobset, "Failed")


def decide(jobset: Object, jobs: Sequence[Object], now: datetime.datetime) -> Decision:
    """`jobs` are all Jobs that the set controls, of this and of earlier attempts."""
    return _Pass(jobset, jobs, now).run()


class _Pass:
    def __init__(self, jobset: Object, jobs: Sequence[Object], now: datetime.datetime) -> None:
        self.jobset, self.spec, self.now, self.jobs = jobset, jobset["spec"], now, jobs
        self.status: dict[str, Any] = clone(jobset.get("status") or {})
        self.status.setdefault("restarts", 0)
        self.status.setdefault("restartsCountTowardsMax", 0)
        self.decision = Decision(self.status)
        self.previous = [job for job in jobs if _attempt(job) < self.status["restarts"]]
        current = [job for job in jobs if _attempt(job) >= self.status["restarts"]]
        self.failed = [job for job in current if conditions.holds(job, "Failed")]
        self.successful = [job for job in current if conditions.holds(job, "Complete")]
        self.active = [job for job in current if job not in self.failed and job not in self.successful]

    def run(self) -> Decision:
        self.status["replicatedJobsStatus"] = [self._replicated_status(rj) for rj in self.spec["replicatedJobs"]]
        if is_finished(self.jobset):
            self.decision.delete = [*self.active]
            return self.decision
        self.decision.delete = [*self.previous]
        if self.failed:
            self._fail_or_restart()
        elif self._has_succeeded():
            self._end("Completed", "AllJobsCompleted", "jobset completed successfully", "Normal")
        else:
            self.decision.needs_service = keys.dns_is_enabled(self.jobset)
            self._set_suspension()
            self._create_missing()
        return self.decision

    def _fail_or_restart(self) -> None:
        result = outcome(self.jobset, self.failed)
        if result.kind == "fail":
            self._end("Failed", result.reason, result.message, "Warning")
            return
        self.status["restarts"] += 1
        self.status["restartsCountTowardsMax"] += result.counts
        self.decision.events.append(("Warning", result.reason, result.message))
        # What belonged to the attempt that just ended goes at once.
        self.decision.delete = [*self.jobs]

    def _has_succeeded(self) -> bool:
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [rj["name"] for rj in self.spec["replicatedJobs"]]
        done = [job for job in self.successful if job["metadata"]["labels"].get(keys.REPLICATED_JOB) in targets]
        if policy.get("operator", "All") == "Any":
            return bool(done)
        return len(done) == sum(replicas(rj) for rj in self.spec["replicatedJobs"] if rj["name"] in targets)

    def _end(self, state: str, reason: str, message: str, event: str) -> None:
        self._condition(state, True, reason, message)
        self.status["terminalState"] = state
        self.decision.events.append((event, reason, message))
        self.decision.delete = [*self.previous, *self.active]

    def _set_suspension(self) -> None:
        wanted = bool(self.spec.get("suspend"))
        templates = {rj["name"]: rj["template"]["spec"]["template"] for rj in self.spec["replicatedJobs"]}
        for job in self.active:
            if bool(job["spec"].get("suspend")) != wanted:
                template = templates[job["metadata"]["labels"][keys.REPLICATED_JOB]]
                self.decision.suspend.append((job, {"suspend": True} if wanted else resumption(job, template)))
        was = conditions.find(self.jobset, "Suspended")
        if wanted and (was is None or was["status"] != "True"):
            self._condition("Suspended", True, "SuspendedJobs", "jobset is suspended")
            self.decision.events.append(("Normal", "SuspendedJobs", "jobset is suspended"))
        elif not wanted and was is not None and was["status"] == "True":
            self._condition("Suspended", False, "ResumeJobs", "jobset is resumed")
            self.decision.events.append(("Normal", "ResumeJobs", "jobset is resumed"))

    def _create_missing(self) -> None:
        policy = self.spec.get("failurePolicy") or {}
        if policy.get("restartStrategy") == "BlockingRecreate" and self.previous:
            return
        existing = {job["metadata"]["name"] for job in self.jobs}
        for replicated_job, job in child_jobs(self.jobset):
            if job["metadata"]["name"] not in existing and self._may_start(replicated_job):
                self.decision.create.append(job)

    def _may_start(self, replicated_job: Object) -> bool:
        """Whether what this replicated job depends on has come far enough."""
        if self.spec.get("suspend"):
            return True
        states = {status["name"]: status for status in self.status["replicatedJobsStatus"]}
        counts = {rj["name"]: replicas(rj) for rj in self.spec["replicatedJobs"]}
        for dependency in replicated_job.get("dependsOn") or ():
            state = states[dependency["name"]]
            enough = state["succeeded"] + (state["ready"] if dependency["status"] == "Ready" else 0)
            if enough < counts[dependency["name"]]:
                return False
        if (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder":
            for name, state in states.items():
                if name == replicated_job["name"]:
                    break
                if state["ready"] + state["succeeded"] + state["failed"] < counts[name]:
                    return False
        return True

    def _replicated_status(self, replicated_job: Object) -> Object:
        status = {"name": replicated_job["name"], "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for job in (*self.active, *self.failed, *self.successful):
            if job["metadata"]["labels"].get(keys.REPLICATED_JOB) != replicated_job["name"]:
                continue
            found = job.get("status") or {}
            if job in self.failed:
                status["failed"] += 1
            elif job in self.successful:
                status["succeeded"] += 1
            else:
                pods = min(job["spec"].get("parallelism", 1), job["spec"].get("completions") or 1_000_000)
                status["ready"] += found.get("succeeded", 0) + found.get("ready", 0) >= pods
                status["active"] += found.get("active", 0) > 0
                status["suspended"] += bool(job["spec"].get("suspend"))
        return status

    def _condition(self, kind: str, status: bool, reason: str, message: str) -> None:
        self.status["conditions"] = with_condition(
            self.status.get("conditions") or [], kind, status, self.now, reason=reason, message=message
        )


def _attempt(job: Object) -> int:
    return int((job["metadata"].get("labels") or {}).get(keys.RESTART_ATTEMPT, 0))
