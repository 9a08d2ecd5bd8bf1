"""The trash of a run: where a sweep puts folders, and the journal that says so. Pure.

A sweep renames what goes into `<run>/.trash-<stamp>-<plan>/<name>/`. The replicator and the trainer never look there:
the one takes only names such as `2026-03-01_00-00` right below the run, the other only steps below `checkpoints`.
Before a trash is emptied it is renamed itself, so that nothing half-deleted can be put back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from everstep.checkpoints.layout import RunFolder
from everstep.retain.plan import RetentionPlan

PREFIX = ".trash-"
EMPTYING = ".emptying"
KEPT_FOR = timedelta(hours=48)
# A sweep that goes on after a crash puts the rest into a trash of its own, so that all of it can be undone for as long.
GOES_ON_FOR = timedelta(hours=1)
_STAMP = "%Y%m%dT%H%M%SZ"
_HASH_LENGTH = 12

State = Literal["applying", "applied", "undone"]


def short(plan_hash: str) -> str:
    """Return the part of a plan's hash that names its trash and its journal."""
    return plan_hash.removeprefix("sha256:")[:_HASH_LENGTH]


def is_hash(text: str) -> bool:
    """Say whether a text is a plan's hash, or enough of one."""
    return re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", text) is not None


def is_of(plan_hash: str, text: str) -> bool:
    """Say whether a plan's hash is the one that a text is, or begins with it."""
    return plan_hash.removeprefix("sha256:").startswith(text.removeprefix("sha256:"))


def folder_name(plan_hash: str, now: datetime) -> str:
    """Return the name of a new trash."""
    return f"{PREFIX}{now.astimezone(UTC).strftime(_STAMP)}-{short(plan_hash)}"


def made_at(name: str) -> datetime | None:
    """Return when a trash of this name was made; None when it is not one of a sweep."""
    try:
        stamp = name.removeprefix(PREFIX).partition("-")[0].removesuffix(EMPTYING)
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC) if name.startswith(PREFIX) else None
    except ValueError:
        return None


def of_plan(names: Iterable[str], plan_hash: str) -> list[str]:
    """Return the trash folders of a plan that can still be undone, newest first."""
    ending = f"-{short(plan_hash)}"
    return sorted((name for name in names if made_at(name) is not None and name.endswith(ending)), reverse=True)


def journal_name(folder: RunFolder, plan_hash: str) -> str:
    """Return where the journal of a plan's sweep stands."""
    return f"{folder.records_prefix}retention/sweeps/{short(plan_hash)}.json"


@dataclass
class Journal:
    """What was begun and done of a plan, as it stands in the bucket.

    `units` maps each name that the plan sweeps to its kind, state and step. `begun` are those that a sweep without
    folders started to delete, and when: what is left of them is deleted by whoever goes on. `generation` is the
    object's, 0 while there is none.
    """

    plan: str
    run: str
    started: str
    state: State = "applying"
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    updated: str = ""
    generation: int = 0

    @classmethod
    def of(cls, plan: RetentionPlan, now: datetime) -> Journal:
        """Return the journal of a sweep that starts now."""
        units = {unit.name: {"kind": unit.kind, "state": unit.state, "step": unit.step} for unit in plan.swept}
        return cls(plan.hash, plan.run, text(now), units=units)

    @classmethod
    def read(cls, document: Mapping[str, Any], generation: int) -> Journal:
        """Return the journal of a document. Raises ValueError, KeyError or TypeError when it is none."""
        if document["version"] != 1 or document["state"] not in ("applying", "applied", "undone"):
            raise ValueError(f"version {document['version']!r}, state {document['state']!r}")
        fields = {key: value for key, value in document.items() if key != "version"}
        return cls(**fields, generation=generation)

    def document(self) -> dict[str, Any]:
        """Return the journal as it is written."""
        return {"version": 1, **{key: value for key, value in vars(self).items() if key != "generation"}}


def text(time: datetime) -> str:
    """Return a time as all records write it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
