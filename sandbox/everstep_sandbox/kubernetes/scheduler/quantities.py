"""Resource quantities ("500m", "16Gi") as exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@lru_cache(maxsize=4096)
def quantity(text: str | int | float) -> Decimal:
    """Raises ValueError for text that is no quantity."""
    number = str(text)
    suffix = number.lstrip("+-0123456789.")
    if suffix[:1] in ("e", "E") and suffix[1:].lstrip("+-").isdigit():
        suffix = ""
    else:
        number = number[: len(number) - len(suffix)]
    if suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity: unknown suffix {suffix!r}")
    try:
        return Decimal(number) * _SUFFIXES[suffix]
    except InvalidOperation:
        raise ValueError(f"{text!r} is no quantity") from None


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod takes from its node: the larger of its init containers and the sum of the others.

    Native sidecars count with the others. A limit stands for a missing request, as the API defaults it.
    """
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    init: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(total, _requests(container))
        else:
            for name, amount in _requests(container):
                init[name] = max(init.get(name, Decimal(0)), amount)
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    for name, amount in init.items():
        total[name] = max(total.get(name, Decimal(0)), amount)
    return total


def _requests(container: Mapping[str, Any]) -> list[tuple[str, Decimal]]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return [(name, quantity(text)) for name, text in merged.items()]


def _add(total: dict[str, Decimal], amounts: Iterable[tuple[str, Decimal]]) -> None:
    for name, amount in amounts:
        total[name] = total.get(name, Decimal(0)) + amount
