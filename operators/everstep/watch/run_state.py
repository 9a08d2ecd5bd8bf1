"""A run's state, read from its JobSet. Pure.

Counters of a JobSet lag behind its pods, so an end is only what a terminal condition says.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from everstep.launch import labels

# One state is kept for each JobSet of a namespace, so none may be large.
LONGEST_MESSAGE = 1000
# Set by Everstep on a JobSet that it suspended because going on was useless.
STOPPED = "everstep.dev/stopped"


class Phase(StrEnum):
    """Where a JobSet is in its life."""

    DELETING = "deleting"
    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"
    RUNNING = "running"
    STARTING = "starting"


TERMINAL = frozenset({Phase.COMPLETED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class RunState:
    """What a JobSet says of the run.

    `jobs` counts slices: all, and those of which every pod is ready; `pods` counts the pods of all. `attempt` counts
    the JobSets that the holder has made, this one included, because those before it failed.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    phase: Phase
    launch: int | None
    restarts: int
    restarts_counted: int
    jobs: int
    ready_jobs: int
    reason: str = ""
    message: str = ""
    holder: str | None = None
    run: str | None = None
    spec_hash: str | None = None
    stopped: str | None = None
    attempt: int = 1
    deleting: bool = False
    pods: int = 0

    @property
    def is_terminal(self) -> bool:
        """Say whether the run has come to an end by itself."""
        return self.phase in TERMINAL

    def __str__(self) -> str:
        text = f"JobSet {self.namespace}/{self.name}: {self.phase}"
        if self.phase in (Phase.RUNNING, Phase.STARTING):
            text += f", {self.ready_jobs} of {self.jobs} slices ready"
        if self.restarts:
            text += f", restart {self.restarts}"
        if self.message and self.is_terminal:
            text += f" ({self.reason}: {self.message})"
        return text


def of_jobset(jobset: Mapping[str, Any]) -> RunState:
    """Return the state that a JobSet object describes."""
    metadata = jobset.get("metadata") or {}
    spec = jobset.get("spec") or {}
    status = jobset.get("status") or {}
    annotations = metadata.get("annotations") or {}
    conditions = {
        condition["type"]: condition
        for condition in status.get("conditions") or []
        if str(condition.get("status")) == "True"
    }
    jobs = pods = 0
    for each in spec.get("replicatedJobs") or []:
        replicas = int(each.get("replicas", 1))
        jobs += replicas
        pods += replicas * int(((each.get("template") or {}).get("spec") or {}).get("parallelism") or 1)
    ready = sum(
        int(each.get("ready") or 0) + int(each.get("succeeded") or 0)
        for each in status.get("replicatedJobsStatus") or []
    )
    phase, deciding = _phase(metadata, spec, status, conditions, jobs, ready)
    launch, attempt = (str(annotations.get(key, "")) for key in (labels.LAUNCH, labels.ATTEMPT))
    return RunState(
        name=metadata.get("name", ""),
        namespace=sys.intern(metadata.get("namespace", "")),
        uid=metadata.get("uid", ""),
        resource_version=str(metadata.get("resourceVersion", "")),
        phase=phase,
        launch=int(launch) if launch.isdecimal() else None,
        restarts=int(status.get("restarts") or 0),
        restarts_counted=int(status.get("restartsCountTowardsMax") or 0),
        jobs=jobs,
        ready_jobs=ready,
        reason=str(deciding.get("reason", "")),
        message=str(deciding.get("message", ""))[:LONGEST_MESSAGE],
        holder=annotations.get(labels.HOLDER),
        run=(metadata.get("labels") or {}).get(labels.RUN),
        spec_hash=annotations.get(labels.SPEC_HASH),
        stopped=annotations.get(STOPPED),
        attempt=int(attempt) if attempt.isdecimal() else 1,
        deleting=bool(metadata.get("deletionTimestamp")),
        pods=pods,
    )


def _phase(
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
    jobs: int,
    ready: int,
) -> tuple[Phase, Mapping[str, Any]]:
    if "Completed" in conditions:
        return Phase.COMPLETED, conditions["Completed"]
    if "Failed" in conditions:
        return Phase.FAILED, conditions["Failed"]
    terminal = str(status.get("terminalState") or "")
    if terminal in ("Completed", "Failed"):
        return Phase(terminal.lower()), {}
    if metadata.get("deletionTimestamp"):
        return Phase.DELETING, {}
    if spec.get("suspend"):
        return Phase.SUSPENDED, conditions.get("Suspended", {})
    return (Phase.RUNNING if ready >= jobs else Phase.STARTING), {}
