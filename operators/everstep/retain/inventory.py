"""What retention found in a run's folder. Pure records; reading.py fills them, deciding.py decides over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everstep.checkpoints.catalogue import Backup, BackupState
from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.layout import RunFolder
from everstep.checkpoints.saves import Save


@dataclass(frozen=True)
class Contents:
    """What one listing says of how much is in a folder; `folders` counts the sub-folders, which may hold more.

    `on_hold` counts the objects that the bucket refuses to delete.
    """

    fingerprint: str
    objects: int = 0
    bytes: int = 0
    folders: int = 0
    on_hold: int = 0


@dataclass(frozen=True)
class FoundBackup:
    """A dated folder. `is_fresh`: judged in this reading; else as it was judged once it had settled.

    `data_folder` is one of its data folders, where this reading has seen one. `ranks`: of how many nodes and workers it
    has metas, as their numbers tell. `other_shape`: it is not complete for
    this run's shape, but is for this one (the run had another size then).
    """

    backup: Backup
    contents: Contents
    other_shape: Shape | None = None
    data_folder: str | None = None
    ranks: tuple[int, int] = (0, 0)
    is_fresh: bool = True

    @property
    def name(self) -> str:
        """Return its folder's name."""
        return self.backup.name

    @property
    def is_complete(self) -> bool:
        """Say whether the replicator would restore it as the run is now."""
        return self.backup.state is BackupState.COMPLETE


@dataclass(frozen=True)
class FoundSave:
    """A plain Orbax or DCP folder under `checkpoints`."""

    save: Save
    contents: Contents
    metric: float | None = None
    is_fresh: bool = True

    @property
    def name(self) -> str:
        """Return its path below the run, as pins and quarantine name it."""
        return f"checkpoints/{self.save.step}"


@dataclass(frozen=True)
class FoundLeftover:
    """What a crash or a sweep left. `name` is a path below the run; `since`: at least so old, None if nothing tells."""

    name: str
    state: str
    since: datetime | None
    contents: Contents


@dataclass(frozen=True)
class Inventory:
    """A run's folder as it was read, and what in it protects. `shape_is_told`: by run.json, and not by a person."""

    folder: RunFolder
    shape: Shape
    shape_is_told: bool = True
    backups: tuple[FoundBackup, ...] = ()
    saves: tuple[FoundSave, ...] = ()
    leftovers: tuple[FoundLeftover, ...] = ()
    forced_restore: str | None = None
    forced_generation: int = 0
    run_record: Mapping[str, Any] = field(default_factory=dict)
    run_record_generation: int = 0
    pins: Mapping[str, Any] = field(default_factory=dict)
    pins_generation: int = 0
    bytes_per_folder: int | None = None
    objects_per_folder: int | None = None
    measured: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    memory: bytes = b""
    memory_generation: int = 0
    first_seen: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def bound_step(self) -> int | None:
        """Return the highest step that the live lineage may restore, None without a bound."""
        bound = self.run_record.get("bound_step")
        return bound if isinstance(bound, int) else None

    @property
    def quarantined(self) -> tuple[str, ...]:
        """Return the names that must not be restored."""
        return tuple(self.run_record.get("quarantined") or ())

    def is_live(self, name: str, step: int | None) -> bool:
        """Say whether a checkpoint belongs to what the live lineage may restore."""
        if step is None or step <= 0 or name in self.quarantined:
            return False
        return self.bound_step is None or step <= self.bound_step
