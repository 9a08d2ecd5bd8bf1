"""Sizes as people and Kubernetes write them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?B?")

_KUBERNETES_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<unit>m|k|M|G|T|P|E|[KMGTPE]i)?"
)
_KUBERNETES_FACTORS: dict[str, Decimal | int] = {**_FACTORS, "m": Decimal("0.001"), "E": 10**18, "Ei": 2**60}


def parse_bytes(text: str | int) -> int:
    """Return bytes from `96GiB`, `96Gi`, `100G` or a plain number. Raises ValueError on anything else."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"a size such as 96GiB, 200Gi or 500M, not {text!r}")
    return int(Decimal(match["number"]) * _FACTORS[match["unit"] or ""])


def with_unit(text: str) -> str:
    """Return a size that has a unit. Raises ValueError without one: Kubernetes takes a bare number for bytes."""
    if not text.rstrip("B")[-1:].isalpha():
        raise ValueError(f"a number and a unit, such as 200Gi: Kubernetes takes {text!r} for bytes")
    return text


def as_quantity(text: str | int) -> str:
    """Return a size as Kubernetes writes it: `96GiB` as `96Gi`. Raises ValueError on what is no size."""
    parse_bytes(text)
    return str(text).replace(" ", "").rstrip("B")


def quantity_value(text: object) -> Decimal | None:
    """Return the value of a Kubernetes quantity such as `200Gi`, `500m`, `2e11` or a number; None for anything else."""
    match = _KUBERNETES_QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return None
    return Decimal(match["number"]) * Decimal(_KUBERNETES_FACTORS[match["unit"] or ""])


def times(size: int, factor: float) -> int:
    """Return a size times a factor such as 2.2, exactly, in whole bytes and rounded up."""
    return math.ceil(Decimal(size) * Decimal(str(factor)))


def format_bytes(count: float) -> str:
    """Return bytes in the largest binary unit that keeps the number above one, such as `96.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit always returns")


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _checked(text: str) -> str:
    parse_bytes(text)
    return text


Size = Annotated[str, BeforeValidator(_as_text), AfterValidator(_checked)]
