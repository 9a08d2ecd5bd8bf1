"""What stays whatever the policy says, and why. Pure: what was read from the bucket in, reasons out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from everstep.checkpoints.catalogue import BackupState
from everstep.checkpoints.saves import SaveState
from everstep.retain.inventory import FoundBackup, FoundSave, Inventory
from everstep.retain.words import duration

NEWEST = "protected: "
"""How the reason of the newest complete ones starts."""

Found = TypeVar("Found", FoundBackup, FoundSave)


@dataclass(frozen=True)
class Settings:
    """How careful a plan is.

    :param keep_complete: so many newest complete backups, and saves, stay: in all and of the live lineage
    :param young: nothing younger goes
    :param incomplete: nor anything incomplete that is younger than that
    :param leftovers: nor any leftover of a crash, nor what is in the trash
    :param max_share: no plan removes a larger part of the complete backups and saves unless it is forced
    :param skew: a name may lie so far in the future
    """

    keep_complete: int = 2
    young: timedelta = timedelta(hours=1)
    incomplete: timedelta = timedelta(hours=24)
    leftovers: timedelta = timedelta(hours=48)
    max_share: float = 0.9
    skew: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if self.keep_complete < 1 or not 0 < self.max_share <= 1 or min(self._times()) < timedelta(0):
            raise ValueError(f"{self}: expected keep_complete from 1, 0 < max_share <= 1, and times from 0")

    def _times(self) -> tuple[timedelta, ...]:
        return (self.young, self.incomplete, self.leftovers, self.skew)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values; times in seconds."""
        return {
            key: value.total_seconds() if isinstance(value, timedelta) else value for key, value in vars(self).items()
        }


def of_backups(found: Inventory, now: datetime, settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return for each backup why it must stay; nothing for one that only the policy judges."""
    newest = _newest_complete_backups(found, now, settings)
    newest_dated = {
        max((each.name for each in found.backups), default=None),
        max((each.name for each in found.backups if not _is_future(each, now, settings)), default=None),
    }
    newest_that_restores = max((each.name for each in found.backups if each.is_complete), default=None)
    return {
        each.name: tuple(
            (
                *_named(each.name, found),
                *_on_hold(each),
                *newest.get(each.name, ()),
                *_unsettled(each, now, settings),
                *(["the newest there is"] if each.name in newest_dated else []),
                *_unneeded(each, newest_that_restores),
            )
        )
        for each in found.backups
    }


def of_saves(found: Inventory, now: datetime, settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return for each plain save why it must stay."""
    complete = [each for each in found.saves if each.save.state is SaveState.COMPLETE]
    newest = _newest(found, complete, settings.keep_complete, "save")
    reasons = {}
    for each in found.saves:
        why = [*_named(each.name, found), *_on_hold(each), *newest.get(each.name, ())]
        if each.save.state is not SaveState.COMPLETE:
            why.append(f"not judged: {each.save.state.value} ({'; '.join(each.save.reasons)})")
        elif each.save.created is None:
            why.append("not judged: no time is known of it")
        elif now - each.save.created < settings.young:
            why.append(f"younger than {duration(settings.young)}")
        reasons[each.name] = tuple(why)
    return reasons


def of_leftover(name: str, found: Inventory) -> tuple[str, ...]:
    """Return why a leftover must stay whatever its age."""
    if (found.forced_restore or "").startswith(f"{name}/"):
        return ("restore.version names a backup in it",)
    return tuple(_named(name, found))


def _newest_complete_backups(found: Inventory, now: datetime, settings: Settings) -> dict[str, list[str]]:
    """The replicator takes the newest by name, also one of the future; so does this, and as many that are not."""
    complete = [each for each in found.backups if each.is_complete]
    past = [each for each in complete if not _is_future(each, now, settings)]
    reasons = _newest(found, complete, settings.keep_complete, "backup")
    for name, why in _newest(found, past, settings.keep_complete, "backup").items():
        reasons.setdefault(name, why)
    return reasons


def _newest(found: Inventory, complete: Sequence[Found], count: int, what: str) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for each in complete[:count]:
        reasons.setdefault(each.name, []).append(f"{NEWEST}among the {count} newest complete {what}s")
    live = [each for each in complete if found.is_live(each.name, _step(each))]
    for each in live[:count]:
        if each.name not in reasons:
            reasons[each.name] = [f"{NEWEST}among the {count} newest complete {what}s of the live lineage"]
    return reasons


def _step(each: FoundBackup | FoundSave) -> int | None:
    return each.backup.step if isinstance(each, FoundBackup) else each.save.step


def _named(name: str, found: Inventory) -> Iterable[str]:
    if name == found.forced_restore:
        yield "named by restore.version"
    if name in found.pins:
        yield _pinned(found.pins[name])
    if name in found.quarantined:
        yield "quarantined, to be looked into"


def _on_hold(each: Found) -> Iterable[str]:
    if each.contents.on_hold:
        yield f"on hold in the bucket: {each.contents.on_hold} of the objects directly in it"


def _pinned(pin: Mapping[str, Any]) -> str:
    why = f"pinned by {pin.get('by') or 'somebody'}"
    if pin.get("reason"):
        why += f": {pin['reason']}"
    return why + (f" (until {pin['until']})" if pin.get("until") else "")


def _unsettled(each: FoundBackup, now: datetime, settings: Settings) -> Iterable[str]:
    backup = each.backup
    if backup.state is BackupState.FOREIGN or backup.time is None:
        yield f"not judged: {'; '.join(backup.reasons) or 'not a backup of this run'}"
        return
    if _is_future(each, now, settings):
        yield "not judged: its date lies in the future"
        return
    age = now - max(backup.time, backup.newest or backup.time)
    if backup.state is BackupState.IN_FLIGHT:
        yield "still uploading"
    elif age < settings.young:
        yield f"younger than {duration(settings.young)}"
    elif backup.state is not BackupState.COMPLETE and each.other_shape is None and age < settings.incomplete:
        yield f"{backup.state.value}, younger than {duration(settings.incomplete)}"


def _unneeded(each: FoundBackup, newest_that_restores: str | None) -> Iterable[str]:
    """What looks incomplete goes only when something newer restores: else the shape, and not it, may be wrong."""
    if each.backup.state is BackupState.INCOMPLETE and each.name > (newest_that_restores or ""):
        yield "incomplete, but nothing newer is complete"


def _is_future(each: FoundBackup, now: datetime, settings: Settings) -> bool:
    return each.backup.time is not None and each.backup.time > now + settings.skew
