"""Pins of a run: names that stay whatever its policy says, with the reason, who said so, and until when."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients.errors import Conflict
from everstep.clients.storage import BucketClient
from everstep.retain import reading
from everstep.retain.plan import RetentionRefused
from everstep.retain.planning import run_folder
from everstep.spec.findings import error

_TRIES = 5


def pin(bucket: BucketClient, run: str, name: str, *, reason: str, by: str, until: str | None = None) -> None:
    """Pin a backup (`2026-03-01_00-00`) or save (`checkpoints/500`). Raises RetentionRefused when it is not there."""
    folder = run_folder(bucket.name, run)
    level = bucket.list_level(f"{folder.prefix}{name}/")
    if not level.objects and not level.folders:
        raise _refused(folder, name, "nothing of that name", "a backup or save of the run")
    for _ in range(_TRIES):
        pins, generation = _read(bucket, folder)
        pins[name] = {"reason": reason, "by": by, "until": _time(folder, name, until)}
        try:
            bucket.write(reading.pins_object(folder), {"names": pins}, generation=generation)
            return
        except Conflict:
            continue
    raise _refused(folder, name, f"pins changed by others {_TRIES} times in a row", "to be the only one that pins")


def unpin(bucket: BucketClient, run: str, name: str) -> bool:
    """Take a pin away. Return whether there was one."""
    folder = run_folder(bucket.name, run)
    for _ in range(_TRIES):
        pins, generation = _read(bucket, folder)
        if pins.pop(name, None) is None:
            return False
        try:
            bucket.write(reading.pins_object(folder), {"names": pins}, generation=generation)
            return True
        except Conflict:
            continue
    raise _refused(folder, name, f"pins changed by others {_TRIES} times in a row", "to be the only one that pins")


def _read(bucket: BucketClient, folder: RunFolder) -> tuple[dict[str, Any], int]:
    stored = bucket.read(reading.pins_object(folder))
    if stored is None:
        return {}, 0
    reading.parse_pins(folder, stored.body)
    return dict(json.loads(stored.body)["names"]), stored.generation


def _time(folder: RunFolder, name: str, until: str | None) -> str | None:
    if until is None:
        return None
    try:
        time = datetime.fromisoformat(until)
    except ValueError:
        raise _refused(folder, name, f"until {until!r}", "a day or a time, such as 2026-12-31") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


def _refused(folder: RunFolder, name: str, found: str, expected: str) -> RetentionRefused:
    return RetentionRefused("nothing is pinned", [error(folder.url(f"{folder.prefix}{name}"), found, expected)])
