"""What has to be changed in the JobSet controller's Deployment so that it has the resources it needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everstep.spec.quantities import quantity_value

Object = dict[str, Any]
MANAGER = "manager"


@dataclass(frozen=True)
class Patch:
    """A strategic merge patch, and what it changes in words."""

    body: Object
    found: str
    wanted: str


def raised(deployment: Mapping[str, Any], *, cpu: str, memory: str, memory_limit: str) -> Patch | None:
    """Return the patch that gives the manager at least these requests and this limit; None when it has them.

    What is higher already stays. No limit is the highest one, and stays too. A limit that is lower than a request that
    is raised goes up with it, since Kubernetes takes no such pod.
    """
    container = _manager(deployment)
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    new_requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if _less(requests.get(key), value)}
    new_limits: Object = {}
    if "memory" in limits and _less(limits["memory"], memory_limit):
        new_limits["memory"] = memory_limit
    for key, value in {**requests, **new_requests}.items():
        limit = new_limits.get(key, limits.get(key))
        if limit is not None and _less(limit, value):
            new_limits[key] = value
    changed = {kind: values for kind, values in (("requests", new_requests), ("limits", new_limits)) if values}
    if not changed:
        return None
    metadata = deployment["metadata"]
    body = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]} if "resourceVersion" in metadata else {},
        "spec": {"template": {"spec": {"containers": [{"name": container["name"], "resources": changed}]}}},
    }
    found = {kind: {key: (resources.get(kind) or {}).get(key) for key in values} for kind, values in changed.items()}
    return Patch(body, _in_words(found), _in_words(changed))


def _manager(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    named = [each for each in containers if each["name"] == MANAGER]
    found: Mapping[str, Any] = (named or [each for each in containers if "jobset" in each["image"]])[0]
    return found


def _less(found: Any, wanted: str) -> bool:
    have, want = quantity_value(found), quantity_value(wanted)
    return want is not None and (have is None or have < want)


def _in_words(resources: Mapping[str, Mapping[str, Any]]) -> str:
    told = []
    for kind, values in resources.items():
        each = ", ".join(f"{key} {value or 'none'}" for key, value in values.items())
        told.append(f"{kind} {each}")
    return "; ".join(told)
