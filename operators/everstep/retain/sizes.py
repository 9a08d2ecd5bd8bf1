"""How much a plan frees: counted where it was, else estimated from one data folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from everstep.retain.inventory import Contents, Inventory
from everstep.retain.plan import Totals, Unit


def filled_in(found: Inventory, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units with what is known of their sizes."""
    contents = {each.name: each.contents for each in found.backups}
    contents |= {each.name: each.contents for each in found.saves}
    contents |= {each.name: each.contents for each in found.leftovers}
    return tuple(_filled_in(found, unit, contents[unit.name]) for unit in units)


def _filled_in(found: Inventory, unit: Unit, contents: Contents) -> Unit:
    if unit.name in found.measured:
        objects, size = found.measured[unit.name]
        return replace(unit, objects=objects, bytes=size)
    if not contents.folders:
        return replace(unit, objects=contents.objects, bytes=contents.bytes)
    if unit.kind != "backup" or found.bytes_per_folder is None:
        return unit
    return replace(
        unit,
        objects=contents.objects + contents.folders * (found.objects_per_folder or 0),
        bytes=contents.bytes + contents.folders * found.bytes_per_folder,
    )


def totals(found: Inventory, units: Sequence[Unit], now: datetime, soft_delete: timedelta) -> Totals:
    """Sum up what a sweep would do."""
    swept = [unit for unit in units if not unit.keep]
    known = [unit for unit in swept if unit.bytes is not None]
    is_estimate = len(known) < len(swept) or any(unit.name not in found.measured for unit in known)
    return Totals(
        kept=len(units) - len(swept),
        swept=len(swept),
        freed_objects=sum(unit.objects or 0 for unit in known) if known or not swept else None,
        freed_bytes=sum(unit.bytes or 0 for unit in known) if known or not swept else None,
        is_estimate=bool(swept) and is_estimate,
        billed_until=now + soft_delete if swept and soft_delete else None,
    )
