"""New pods that a ResourceQuota of their namespace has no room for."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from everstep_sandbox.kubernetes import errors, quotas
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Raises ApiError 403 with what was asked for, what is taken and what there is."""
    if resource.plural != "pods" or old is not None:
        return
    namespace = new["metadata"]["namespace"]
    for quota in store.list("resourcequotas", namespace):
        limits = quotas.hard(quota)
        asked = quotas.used(limits, [new])
        taken = quotas.used(limits, store.list("pods", namespace))
        over = [name for name in sorted(limits) if asked[name] and taken[name] + asked[name] > limits[name]]
        if over:
            told = ", ".join(
                f"{what}: {_listed(over, amounts)}"
                for what, amounts in (("requested", asked), ("used", taken), ("limited", limits))
            )
            why = f"exceeded quota: {quota['metadata']['name']}, {told}"
            raise errors.forbidden(resource, new["metadata"]["name"], why)


def _listed(names: list[str], amounts: Mapping[str, Decimal]) -> str:
    return ",".join(f"{name}={quotas.written(amounts[name])}" for name in names)
