"""What controllers ask of pods."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from everstep_sandbox.kubernetes.controllers import conditions
from everstep_sandbox.kubernetes.controllers.conditions import with_condition
from everstep_sandbox.kubernetes.objects import Object, clone, parse_timestamp
from everstep_sandbox.kubernetes.store import Store

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Mapping[str, Any]) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_ready(pod: Mapping[str, Any]) -> bool:
    return conditions.holds(pod, "Ready")


def controller_uid(obj: Mapping[str, Any]) -> str | None:
    """The uid of the object's controlling owner."""
    reference = controller_reference(obj)
    return None if reference is None else str(reference["uid"])


def controller_reference(obj: Mapping[str, Any]) -> Object | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


def completion_index(pod: Mapping[str, Any]) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION)
    return int(text) if text is not None and str(text).isdigit() else None


def finished_at(pod: Mapping[str, Any]) -> datetime.datetime:
    """When the last of its containers ended; the pod's creation where none ever ran."""
    times = [
        parse_timestamp(ended["finishedAt"])
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if (ended := (status.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    return max(times, default=parse_timestamp(pod["metadata"]["creationTimestamp"]))


def disrupt(
    store: Store,
    pod: Object,
    now: datetime.datetime,
    *,
    reason: str,
    message: str,
    user_agent: str,
    failed: bool = False,
) -> None:
    """Sets the condition DisruptionTarget, and with `failed` the phase, before a pod is deleted for its reason."""
    changed = clone(pod)
    status = changed.setdefault("status", {})
    status["conditions"] = with_condition(
        status.get("conditions") or [], "DisruptionTarget", True, now, reason=reason, message=message
    )
    if failed and not is_terminal(pod):
        status["phase"] = "Failed"
        status["conditions"] = [
            {**condition, "status": "False"} if condition["type"] in ("Ready", "ContainersReady") else condition
            for condition in status["conditions"]
        ]
    store.update("pods", pod["metadata"]["namespace"], changed, subresource="status", user_agent=user_agent)
