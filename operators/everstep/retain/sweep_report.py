"""What a sweep and an undo did. Pure records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.retain.trash import KEPT_FOR
from everstep.spec.findings import FindingsError


class SweepStopped(FindingsError):
    """A sweep that must not go on: what it relied on is not so any more. What it had done stays as it is."""


@dataclass(frozen=True)
class SweepSettings:
    """How a sweep is done.

    :param now: the clock
    :param fence: the generation that the run's lease must have, None for none: another one ends the sweep
    :param together: so many folders go between two looks at what protects
    :param trash_age: a trash is emptied once it is so old
    :param empty_now: empty the plan's own trash at once: nothing can be undone
    :param told: is told of progress
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    fence: Callable[[], int | None] = lambda: None
    together: int = 32
    trash_age: timedelta = KEPT_FOR
    empty_now: bool = False
    told: Callable[[str], None] = lambda _: None


@dataclass
class SweepReport:
    """What became of each unit of a plan, by name.

    `swept` went in this start, `already` in an earlier one. `skipped` gives reasons: these are as they were. `left`
    are objects that the bucket refused to delete, and why. `trash` names the folders that can be undone until
    `undo_until`; what is in them is billed until they are emptied. `swept_bytes` are of what went in this start: as
    the plan knew them, or, in a flat bucket, as they were deleted.
    """

    plan: str
    run: str
    bucket: str
    swept: list[str] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    put_back: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    trash: list[str] = field(default_factory=list)
    undo_until: str | None = None
    emptied: list[str] = field(default_factory=list)
    objects_deleted: int = 0
    swept_bytes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SweepReport:
        """Return the report of a journal, also of one that another version of Everstep wrote."""
        return cls(**{each.name: document[each.name] for each in fields(cls) if each.name in document})

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @property
    def gone(self) -> list[str]:
        """Return what went in this start and in earlier ones."""
        return sorted({*self.already, *self.swept})

    @property
    def has_swept(self) -> bool:
        """Say whether anything went or trash was emptied; also by a start that died before it could tell."""
        return bool(self.gone or self.emptied or self.objects_deleted)

    def lines(self) -> list[str]:
        """Return what happened in sentences."""
        where = f"gs://{self.bucket}/{self.run}"
        lines = [f"{where}: {len(self.swept)} swept, {len(self.already)} swept earlier, {len(self.skipped)} skipped"]
        lines += [f"skipped {name}: {why}" for name, why in sorted(self.skipped.items())]
        lines += [f"put back {name}" for name in self.put_back]
        lines += [f"not deleted {name}: {why}" for name, why in sorted(self.left.items())]
        lines += [f"emptied {name}" for name in self.emptied]
        if self.trash and self.undo_until:
            command = f"everstep retain undo {where} --plan {self.plan}"
            lines.append(f"it lies in the trash, billed as before, until a sweep after {self.undo_until} empties that")
            lines.append(f"until then this undoes it: {command}")
        return lines


@dataclass
class UndoReport:
    """What an undo put back, and what it could not, with reasons, by name."""

    plan: str
    run: str
    bucket: str
    restored: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return what happened in sentences."""
        where = f"gs://{self.bucket}/{self.run}"
        if not self.restored and not self.skipped:
            return [f"{where}: plan {self.plan} was undone before, and nothing is left in its trash"]
        lines = [f"{where}: {len(self.restored)} put back, {len(self.skipped)} not"]
        return lines + [f"not put back {name}: {why}" for name, why in sorted(self.skipped.items())]
