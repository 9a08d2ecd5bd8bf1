"""Verdicts of backups and saves that have settled, remembered in the bucket so that a plan needn't read them again.

They only save requests: what a plan protects is judged anew each time, and a sweep looks at what it removes again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everstep.checkpoints.catalogue import Backup, BackupState
from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.layout import DURABLE, RunFolder
from everstep.checkpoints.names import parse_backup_directory
from everstep.checkpoints.saves import Save, SaveState
from everstep.retain.inventory import Contents, FoundBackup, FoundSave, Inventory

VERSION = 2
COMPLETE_SETTLED = timedelta(hours=1)
"""Nothing comes any more into a backup that was complete when it was so old."""
SETTLED = timedelta(hours=48)
"""Longer than an upload is waited for, so that nothing else in it is still on its way."""


def object_name(folder: RunFolder) -> str:
    """Return where a run's verdicts are remembered."""
    return f"{folder.records_prefix}retention/verdicts.json"


@dataclass(frozen=True)
class Memory:
    """What was remembered. Empty where nothing was, or where it was judged by another shape."""

    backups: Mapping[str, FoundBackup] = field(default_factory=dict)
    saves: Mapping[int, FoundSave] = field(default_factory=dict)
    first_seen: Mapping[str, datetime] = field(default_factory=dict)
    bytes_per_folder: int | None = None
    objects_per_folder: int | None = None


def read(body: bytes | None, folder: RunFolder, shape: Shape, metric: str | None) -> Memory:
    """Read what was remembered; what can't be read or was judged otherwise is as good as nothing."""
    try:
        document = json.loads(body or b"")
        if (document["version"], document["run"]) != (VERSION, folder.run):
            return Memory()
        first_seen = {name: datetime.fromisoformat(text) for name, text in document["first_seen"].items()}
        if document["shape"] != asdict(shape):
            return Memory(first_seen=first_seen)
        return Memory(
            {name: _backup(name, each) for name, each in document["backups"].items()},
            {int(step): _save(int(step), each) for step, each in document["saves"].items()}
            if document["metric"] == metric
            else {},
            first_seen,
            document["bytes_per_folder"],
            document["objects_per_folder"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return Memory()


def document(found: Inventory, metric: str | None, now: datetime) -> dict[str, Any]:
    """Return what to remember: verdicts of what has settled, and when leftovers without a date were first seen."""
    return {
        "version": VERSION,
        "run": found.folder.run,
        "shape": asdict(found.shape),
        "metric": metric,
        "backups": {
            each.name: {
                "state": each.backup.state.value,
                "step": each.backup.step,
                "reasons": list(each.backup.reasons[:3]),
                "newest": _text(each.backup.newest),
                "other_shape": None if each.other_shape is None else asdict(each.other_shape),
                "ranks": list(each.ranks),
                "contents": asdict(each.contents),
            }
            for each in found.backups
            # A hold that is taken away must be seen.
            if not each.contents.on_hold
            and _has_settled(
                each.backup.time, each.backup.newest, now, COMPLETE_SETTLED if each.is_complete else SETTLED
            )
        },
        "saves": {
            str(each.save.step): {
                "framework": each.save.framework,
                "created": _text(each.save.created),
                "metric": each.metric,
                "contents": asdict(each.contents),
            }
            for each in found.saves
            if each.save.state is SaveState.COMPLETE
            and not each.contents.on_hold
            and _has_settled(each.save.created, None, now, COMPLETE_SETTLED)
        },
        "first_seen": {name: _text(time) for name, time in found.first_seen.items()},
        "bytes_per_folder": found.bytes_per_folder,
        "objects_per_folder": found.objects_per_folder,
    }


def without(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a document of what is remembered without some backups and saves. Raises for what is none."""
    return {
        **document,
        "backups": {name: each for name, each in document["backups"].items() if name not in names},
        "saves": {step: each for step, each in document["saves"].items() if f"{DURABLE}/{step}" not in names},
    }


def _has_settled(time: datetime | None, newest: datetime | None, now: datetime, after: timedelta) -> bool:
    times = [each for each in (time, newest) if each is not None]
    return bool(times) and now - max(times) > after


def _backup(name: str, each: Mapping[str, Any]) -> FoundBackup:
    backup = Backup(
        name,
        parse_backup_directory(name),
        each["step"],
        BackupState(each["state"]),
        tuple(each["reasons"]),
        _time(each["newest"]),
    )
    other = each["other_shape"]
    nodes, workers = each["ranks"]
    return FoundBackup(
        backup,
        Contents(**each["contents"]),
        None if other is None else Shape(**other),
        ranks=(nodes, workers),
        is_fresh=False,
    )


def _save(step: int, each: Mapping[str, Any]) -> FoundSave:
    save = Save(step, each["framework"], SaveState.COMPLETE, (), _time(each["created"]))
    return FoundSave(save, Contents(**each["contents"]), each["metric"], is_fresh=False)


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
