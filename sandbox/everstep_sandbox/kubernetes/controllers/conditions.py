"""Conditions of a status: lists of {type, status, reason, message, lastTransitionTime}."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from everstep_sandbox.kubernetes.objects import Object, timestamp


def find(obj: Mapping[str, Any], kind: str) -> Object | None:
    """The condition of this type in the object's status, or None."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Object = condition
            return found
    return None


def holds(obj: Mapping[str, Any], kind: str) -> bool:
    condition = find(obj, kind)
    return condition is not None and condition["status"] == "True"


def with_condition(
    conditions: Iterable[Object],
    kind: str,
    status: bool | str,
    now: datetime.datetime,
    *,
    reason: str,
    message: str,
    probe_time: bool = False,
) -> list[Object]:
    """The list with this condition set; its transition time moves only where its status changes."""
    text = status if isinstance(status, str) else str(bool(status))
    new: Object = {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    if probe_time:
        new["lastProbeTime"] = timestamp(now)
    result: list[Object] = []
    for condition in conditions:
        if condition["type"] != kind:
            result.append(condition)
            continue
        if condition["status"] == text:
            if (condition.get("reason"), condition.get("message")) == (reason, message):
                new = condition
            else:
                new["lastTransitionTime"] = condition["lastTransitionTime"]
    position = next((i for i, condition in enumerate(conditions) if condition["type"] == kind), len(result))
    result.insert(position, new)
    return result
