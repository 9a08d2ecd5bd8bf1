"""What one pod says of itself, reduced to what a diagnosis needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.launch import labels


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod. `exit_code` and the reasons are those of the training container; sidecars don't count."""

    name: str
    uid: str
    node: str
    attempt: int
    slice: int
    index: int
    phase: str
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    container_reason: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    disruption: str | None = None
    disruption_message: str = ""
    ended: str = ""
    deleted: bool = False
    scheduled: bool = True
    unschedulable: str = ""

    @property
    def has_failed(self) -> bool:
        """Say whether the pod ended badly, or is being taken away by the cluster."""
        return self.phase == "Failed" or self.disruption is not None or self.exit_code not in (None, 0)


def of_pod(pod: Mapping[str, Any]) -> PodState:
    """Return the state that a pod object describes."""
    metadata = pod.get("metadata") or {}
    status = pod.get("status") or {}
    pod_labels = metadata.get("labels") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or []}
    disruption = conditions.get("DisruptionTarget") or {}
    disrupted = str(disruption.get("status")) == "True"
    scheduled = conditions.get("PodScheduled") or {}
    container = _training_container(status)
    state = container.get("state") or {}
    terminated = state.get("terminated") or {}
    waiting = state.get("waiting") or {}
    ended = terminated.get("finishedAt") or (disruption.get("lastTransitionTime") if disrupted else "") or ""
    return PodState(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        node=(pod.get("spec") or {}).get("nodeName") or "",
        attempt=int(pod_labels.get(labels.RESTART_ATTEMPT) or 0),
        slice=int(pod_labels.get(labels.JOB_INDEX) or 0),
        index=int((metadata.get("annotations") or {}).get(labels.COMPLETION_INDEX) or 0),
        phase=status.get("phase", ""),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        exit_code=terminated.get("exitCode"),
        container_reason=terminated.get("reason") or "",
        waiting_reason=waiting.get("reason") or "",
        waiting_message=waiting.get("message") or "",
        disruption=disruption.get("reason", "") if disrupted else None,
        disruption_message=disruption.get("message", "") if disrupted else "",
        ended=ended,
        deleted=bool(metadata.get("deletionTimestamp")),
        scheduled=bool((pod.get("spec") or {}).get("nodeName")),
        unschedulable=scheduled.get("message", "") if str(scheduled.get("status")) == "False" else "",
    )


def of_attempt(pods: Iterable[PodState], attempt: int) -> list[PodState]:
    """Return the pods of one attempt, in order of slice and index; those of others may still be on their way out."""
    return sorted((pod for pod in pods if pod.attempt == attempt), key=lambda pod: (pod.slice, pod.index, pod.name))


def _training_container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = status.get("containerStatuses") or []
    for container in containers:
        if container.get("name") == labels.TRAINER_CONTAINER:
            return container if isinstance(container, Mapping) else {}
    return containers[0] if len(containers) == 1 else {}
