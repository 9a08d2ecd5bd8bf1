"""A retention plan: everything of a run that retention looks at, with what happens to it and why. Pure.

A plan is a file. Its hash covers all of it, so a plan that was changed after it was reviewed is refused; each unit's
fingerprint tells whether the bucket still holds what was planned for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, get_args

from everstep.checkpoints.completeness import Shape
from everstep.retain.policy import Policy
from everstep.spec.findings import FindingsError, error

VERSION = 1

Kind = Literal["backup", "durable", "dcp", "leftover"]
Decision = Literal["keep", "sweep"]


class RetentionRefused(FindingsError):
    """A plan that is not made, or a plan file that is not taken."""


@dataclass(frozen=True)
class Unit:
    """What is kept or swept as a whole: a folder right below the run, or below its `checkpoints`.

    `prefix` is the exact folder in the bucket and ends with `/`. `state` is the catalogue's for backups, "complete" or
    "unproven" for saves, "trash", "temporary" or "to be deleted" for leftovers. `objects` and `bytes` are None where
    nothing is known of them. `fingerprint` is `fingerprints.of_listing` of the folder's own level.
    """

    kind: Kind
    name: str
    prefix: str
    state: str
    step: int | None
    decision: Decision
    reasons: tuple[str, ...]
    fingerprint: str
    time: datetime | None = None
    objects: int | None = None
    bytes: int | None = None

    @property
    def keep(self) -> bool:
        """Say whether it stays."""
        return self.decision == "keep"


@dataclass(frozen=True)
class ProtectedRead:
    """What protects, as it was read from the bucket when the plan was made. Generations are 0 where nothing was.

    `newest_complete` are the backups and saves that were found complete in this reading, not remembered.
    """

    forced_restore: str | None = None
    forced_generation: int = 0
    lineage: str | None = None
    bound_step: int | None = None
    quarantined: tuple[str, ...] = ()
    run_record_generation: int = 0
    pins: tuple[str, ...] = ()
    pins_generation: int = 0
    newest_complete: tuple[str, ...] = ()


@dataclass(frozen=True)
class Totals:
    """What a sweep would do in numbers. `is_estimate`: sizes below data folders come from a sample.

    `billed_until`: soft delete keeps what goes, and its bill, until about then; None where the bucket has none.
    """

    kept: int
    swept: int
    freed_objects: int | None
    freed_bytes: int | None
    is_estimate: bool = False
    billed_until: datetime | None = None


@dataclass(frozen=True)
class RetentionPlan:
    """What a sweep of one run would keep and remove, newest first within each kind, as decided at `made_at` (UTC)."""

    bucket: str
    run: str
    made_at: datetime
    policy: Policy
    shape: Shape
    hierarchical: bool
    units: tuple[Unit, ...]
    protected_read: ProtectedRead
    totals: Totals
    warnings: tuple[str, ...] = ()
    forced: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kept(self) -> tuple[Unit, ...]:
        """Return what stays."""
        return tuple(unit for unit in self.units if unit.keep)

    @property
    def swept(self) -> tuple[Unit, ...]:
        """Return what goes."""
        return tuple(unit for unit in self.units if not unit.keep)

    @cached_property
    def hash(self) -> str:
        """Return `sha256:…` over everything in the plan."""
        return _hash(self._content())

    def named(self, name: str) -> Unit | None:
        """Return the unit of a name (`2026-03-01_00-00`, `checkpoints/500`), None when there is none."""
        return next((unit for unit in self.units if unit.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, with its hash."""
        content = self._content()
        return {**content, "hash": _hash(content)}

    def to_json(self) -> str:
        """Return the plan as it is saved."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    def _content(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "bucket": self.bucket,
            "run": self.run,
            "made_at": _text(self.made_at),
            "policy": self.policy.as_dict(),
            "settings": dict(self.settings),
            "shape": vars(self.shape),
            "hierarchical": self.hierarchical,
            "forced": self.forced,
            "protected_read": _values(self.protected_read),
            "totals": _values(self.totals),
            "warnings": list(self.warnings),
            "units": [_values(unit) for unit in self.units],
        }


def verify(text: str | bytes | Mapping[str, Any], *, where: str = "plan") -> RetentionPlan:
    """Return the plan of a file's content. Raises RetentionRefused when it can't be read or was changed.

    :param where: what the file is called
    """
    try:
        document = text if isinstance(text, Mapping) else json.loads(text)
        if not isinstance(document, Mapping):
            raise ValueError("no JSON object")
        if document.get("version") != VERSION:
            raise ValueError(f"version {document.get('version')!r}, not {VERSION}")
        plan = _from_dict(document)
        content = {key: value for key, value in document.items() if key != "hash"}
        found, expected = document.get("hash"), _hash(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
        found = f"no plan, or only part of one ({type(failure).__name__}: {failure})"
        raise _refused("the plan can't be read", where, found, "a plan that Everstep wrote") from None
    if found != expected or plan.hash != expected:
        found = f"changed after it was made: its hash is {found!r}, and {expected} is that of what it says"
        raise _refused("the plan was changed", where, found, "the plan as it was made")
    return plan


def _from_dict(document: Mapping[str, Any]) -> RetentionPlan:
    read = dict(document["protected_read"])
    totals = dict(document["totals"])
    return RetentionPlan(
        bucket=document["bucket"],
        run=document["run"],
        made_at=datetime.fromisoformat(document["made_at"]),
        policy=Policy.from_dict(document["policy"]),
        shape=Shape(**document["shape"]),
        hierarchical=document["hierarchical"],
        units=tuple(_unit(each) for each in document["units"]),
        protected_read=ProtectedRead(
            **{**read, **{key: tuple(read[key]) for key in ("quarantined", "pins", "newest_complete")}}
        ),
        totals=Totals(**{**totals, "billed_until": _time(totals["billed_until"])}),
        warnings=tuple(document["warnings"]),
        forced=document["forced"],
        settings=document["settings"],
    )


def _unit(document: Mapping[str, Any]) -> Unit:
    unit = Unit(**document)
    if unit.kind not in get_args(Kind) or unit.decision not in get_args(Decision):
        raise ValueError(f"unit {unit.name!r}: kind {unit.kind!r}, decision {unit.decision!r}")
    return replace(unit, reasons=tuple(unit.reasons), time=_time(document["time"]))


def _values(record: Any) -> dict[str, Any]:
    return {each.name: _value(getattr(record, each.name)) for each in fields(record)}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return _text(value)
    return list(value) if isinstance(value, tuple) else value


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _refused(title: str, where: str, found: str, expected: str) -> RetentionRefused:
    return RetentionRefused(title, [error(where, found, expected, "make a new one: everstep retain plan RUN")])
