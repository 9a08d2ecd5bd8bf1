"""What pods take from a namespace's ResourceQuotas. Pure.

Counted are pods and their requests, the names that keep accelerators from those who have none left. Other names of a
quota (limits, storage, objects of other kinds) are kept and not enforced.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.scheduler.quantities import pod_requests, quantity

_COUNTS = ("pods", "count/pods")


def hard(quota: Object) -> dict[str, Decimal]:
    """The bounds of a quota that are enforced."""
    given = (quota.get("spec") or {}).get("hard") or {}
    return {name: quantity(text) for name, text in given.items() if _requested(name) is not None}


def used(names: Iterable[str], pods: Iterable[Object]) -> dict[str, Decimal]:
    """What pods that have not ended take of each name."""
    total = dict.fromkeys(names, Decimal(0))
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        requests = pod_requests(pod["spec"])
        for name in total:
            total[name] += requests.get(_requested(name) or "", Decimal(0))
    return total


def written(amount: Decimal) -> str:
    """An amount as a plain number, in thousandths where it is no whole one."""
    return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"


def _requested(name: str) -> str | None:
    """The resource of pods that a quota's name bounds."""
    if name in _COUNTS:
        return "pods"
    if name in ("cpu", "memory"):
        return name
    return name.removeprefix("requests.") if name.startswith("requests.") else None
