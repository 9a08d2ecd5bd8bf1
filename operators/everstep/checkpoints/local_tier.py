"""What the markers in a node's checkpoint directory say about the restore.

The replicator leaves ``<job>-s<step>-n<node>-w<worker>.restore``: a symlink to the data when there is
something to restore, an empty regular file with step 0 when there is not. Whoever restores renames the
symlink to the bare step (Orbax) and so consumes it. Names that are no such marker are ignored with a warning:
one reader of old took them for a fresh start.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from everstep.checkpoints import names

RESTORE_SUFFIX = ".restore"
EntryKind = Literal["file", "directory", "symlink"]


@dataclass(frozen=True)
class Entry:
    """One directory entry as lstat sees it. ``resolves``: a symlink's target exists (True for all others)."""

    name: str
    kind: EntryKind
    size: int = 0
    resolves: bool = True


class MarkerState(enum.StrEnum):
    """What one marker means."""

    FRESH = "fresh"
    """There is no checkpoint to restore."""
    RESTORED = "restored"
    """The data of the step is on the node."""
    DANGLING = "dangling"
    """The marker points at data that is not there: an error."""
    FOREIGN = "foreign"
    """Not a marker that the replicator writes: ignored, worth a warning."""
    CONSUMED = "consumed"
    """The step was handed over earlier and the marker renamed to it."""


@dataclass(frozen=True)
class Marker:
    """A marker, its step (None only for foreign ones) and its meaning."""

    name: str
    state: MarkerState
    step: int | None


@dataclass(frozen=True)
class LocalTier:
    """All markers of a directory. ``decided`` is the one that counts, if any does."""

    markers: tuple[Marker, ...]

    @property
    def decided(self) -> Marker | None:
        """The highest restored or dangling step, else a fresh start, else the highest consumed step, else
        None.
        """
        for states in (
            (MarkerState.RESTORED, MarkerState.DANGLING),
            (MarkerState.FRESH,),
            (MarkerState.CONSUMED,),
        ):
            found = [marker for marker in self.markers if marker.state in states]
            if found:
                return max(found, key=lambda marker: -1 if marker.step is None else marker.step)
        return None

    @property
    def foreign(self) -> tuple[str, ...]:
        return tuple(marker.name for marker in self.markers if marker.state is MarkerState.FOREIGN)


def read(entries: Iterable[Entry], *, job: str | None = None) -> LocalTier:
    """Interpret a directory's entries; with a job name, markers of other jobs are foreign."""
    markers = [marker for entry in entries if (marker := _marker(entry, job)) is not None]
    return LocalTier(tuple(sorted(markers, key=lambda marker: marker.name)))


def _marker(entry: Entry, job: str | None) -> Marker | None:
    if not entry.name.endswith(RESTORE_SUFFIX):
        step = names.parse_step(entry.name)
        if step is None or entry.kind == "file":
            return None
        return Marker(entry.name, MarkerState.CONSUMED, step)
    parsed = names.parse_restore(entry.name)
    if parsed is None or (job is not None and parsed.job != job):
        return Marker(entry.name, MarkerState.FOREIGN, None)
    if entry.kind == "symlink" and parsed.step > 0:
        return Marker(entry.name, MarkerState.RESTORED if entry.resolves else MarkerState.DANGLING, parsed.step)
    if entry.kind == "file" and entry.size == 0 and parsed.step == 0:
        return Marker(entry.name, MarkerState.FRESH, 0)
    return Marker(entry.name, MarkerState.FOREIGN, None)
