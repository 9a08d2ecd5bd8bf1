"""The podFailurePolicy of a Job: which rule a failed pod matches. Pure.

Messages are those of the real controller, since JobSet's rules match patterns on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from everstep_sandbox.kubernetes.objects import Object

Action = Literal["FailJob", "Ignore", "Count", "FailIndex"]


@dataclass(frozen=True, slots=True)
class Match:
    """What the first matching rule wants done; the message is empty unless the action fails something."""

    action: Action
    message: str = ""


def match(policy: Mapping[str, Any] | None, pod: Object) -> Match | None:
    """The first rule of the policy that the failed pod matches, or None."""
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        what = _exit_code(rule, pod) or _condition(rule, pod)
        if what:
            action: Action = rule["action"]
            fails = action in ("FailJob", "FailIndex")
            return Match(action, f"{what} matching {action} rule at index {index}" if fails else "")
    return None


def _exit_code(rule: Object, pod: Object) -> str | None:
    wanted = rule.get("onExitCodes")
    if not wanted:
        return None
    status = pod.get("status") or {}
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated")
        if not ended or ended["exitCode"] == 0 or wanted.get("containerName") not in (None, container["name"]):
            continue
        if (ended["exitCode"] in wanted["values"]) == (wanted["operator"] == "In"):
            where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            return f"Container {container['name']} for pod {where} failed with exit code {ended['exitCode']}"
    return None


def _condition(rule: Object, pod: Object) -> str | None:
    present = {item["type"]: item["status"] for item in (pod.get("status") or {}).get("conditions") or ()}
    for pattern in rule.get("onPodConditions") or ():
        if present.get(pattern["type"]) == (pattern.get("status") or "True"):
            where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            return f"Pod {where} has condition {pattern['type']}"
    return None
