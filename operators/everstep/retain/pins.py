"""Pins of a run: names that stay whatever its policy says, with the reason, who said so, and until when."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from everstep.checkpoints import names
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.clients.errors import Conflict
from everstep.clients.storage import BucketClient
from everstep.retain import records
from everstep.retain.place import run_folder
from everstep.retain.plan import RetentionRefused
from everstep.spec.findings import error

_TRIES = 5


def pin(
    bucket: BucketClient,
    run: str,
    name: str,
    *,
    reason: str,
    by: str,
    until: str | None = None,
    now: datetime | None = None,
) -> str:
    """Pin a backup (`2026-03-01_00-00`) or save (`checkpoints/500`, or `500`), and return its name as pins have it.

    Raises RetentionRefused when it is not there, is neither of both, or would not be kept at all.
    """
    folder = run_folder(bucket.name, run)
    name = full_name(name)
    if not _can_be_pinned(name):
        raise _refused(folder, name, "neither a backup nor a save", "2026-03-01_00-00, or checkpoints/500")
    if not reason.strip():
        raise _refused(folder, name, "no reason", "why it must stay, for whoever wonders later")
    end = _time(folder, name, until, now or datetime.now(UTC))
    level = bucket.list_level(f"{folder.prefix}{name}/")
    if not level.objects and not level.folders:
        raise _refused(folder, name, "nothing of that name", "a backup or save of the run")
    for _ in range(_TRIES):
        pins, generation = _read(bucket, folder)
        pins[name] = {"reason": reason, "by": by, "until": end}
        try:
            bucket.write(records.pins_object(folder), {"names": pins}, generation=generation)
            return name
        except Conflict:
            continue
    raise _refused(folder, name, f"pins changed by others {_TRIES} times in a row", "to be the only one that pins")


def unpin(bucket: BucketClient, run: str, name: str) -> bool:
    """Take a pin away. Return whether there was one."""
    folder = run_folder(bucket.name, run)
    for _ in range(_TRIES):
        pins, generation = _read(bucket, folder)
        pinned = next((each for each in (name, full_name(name)) if each in pins), None)
        if pinned is None:
            return False
        del pins[pinned]
        try:
            bucket.write(records.pins_object(folder), {"names": pins}, generation=generation)
            return True
        except Conflict:
            continue
    raise _refused(folder, name, f"pins changed by others {_TRIES} times in a row", "to be the only one that pins")


def full_name(name: str) -> str:
    """Return the name of a backup or save as plans and pins have it, of what somebody typed: `500`, a slash behind."""
    name = name.strip("/")
    return f"{DURABLE}/{name}" if names.parse_step(name) is not None else name


def _can_be_pinned(name: str) -> bool:
    parent, _, last = name.rpartition("/")
    return names.looks_like_backup(name) or (parent == DURABLE and names.parse_step(last) is not None)


def _read(bucket: BucketClient, folder: RunFolder) -> tuple[dict[str, Any], int]:
    stored = bucket.read(records.pins_object(folder))
    if stored is None:
        return {}, 0
    records.parse_pins(folder, stored.body)
    return dict(json.loads(stored.body)["names"]), stored.generation


def _time(folder: RunFolder, name: str, until: str | None, now: datetime) -> str | None:
    if until is None:
        return None
    try:
        time = datetime.fromisoformat(until)
    except ValueError:
        raise _refused(folder, name, f"until {until!r}", "a day or a time, such as 2026-12-31") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    if time <= now:
        raise _refused(folder, name, f"until {until!r}, which is over", "a time to come")
    return time.isoformat()


def _refused(folder: RunFolder, name: str, found: str, expected: str) -> RetentionRefused:
    return RetentionRefused("nothing is pinned", [error(folder.url(f"{folder.prefix}{name}"), found, expected)])
