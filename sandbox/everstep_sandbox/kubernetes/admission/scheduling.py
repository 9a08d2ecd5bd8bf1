"""PriorityClasses: values are bounded, and neither they nor the preemption policy ever change."""

from __future__ import annotations

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.admission.fields import forbidden, immutable, invalid, not_supported
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_NAMES = ("system-cluster-critical", "system-node-critical")
_POLICIES = ["PreemptLowerPriority", "Never"]


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Raises ApiError 422 with all findings, 403 for a second global default."""
    if resource.plural != "priorityclasses":
        return
    name = new["metadata"]["name"]
    new.setdefault("preemptionPolicy", "PreemptLowerPriority")
    value = new.setdefault("value", 0)
    causes: list[Cause] = []
    if not isinstance(value, int) or isinstance(value, bool):
        causes.append(invalid("value", value, "expected a whole number"))
    elif name.startswith("system-"):
        if name not in _SYSTEM_NAMES:
            causes.append(
                forbidden(
                    "metadata.name",
                    "priority class names with 'system-' prefix are reserved for system use only. "
                    f"error: {name} is not a known system priority class",
                )
            )
    elif value > _HIGHEST_USER_PRIORITY:
        bound = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        causes.append(forbidden("value", bound))
    if new["preemptionPolicy"] not in _POLICIES:
        causes.append(not_supported("preemptionPolicy", new["preemptionPolicy"], _POLICIES))
    if old is not None:
        if value != old["value"]:
            causes.append(forbidden("value", "may not be changed in an update."))
        causes += immutable("preemptionPolicy", old.get("preemptionPolicy"), new["preemptionPolicy"])
    if causes:
        raise errors.invalid(resource, name, causes)
    if new.get("globalDefault"):
        for other in store.list("priorityclasses"):
            if other.get("globalDefault") and other["metadata"]["name"] != name:
                default = other["metadata"]["name"]
                raise errors.forbidden(
                    resource, name, f"PriorityClass {default} is already marked as default. Only one default can exist"
                )
