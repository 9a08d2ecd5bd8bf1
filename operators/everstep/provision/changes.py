"""What provisioning is about to change, and what it waits for: data that a person can read before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from everstep.spec.findings import Finding


class Mode(StrEnum):
    """How far provisioning goes: only look, also print what would do it, or do it."""

    CHECK = "check"
    EMIT = "emit"
    APPLY = "apply"


@dataclass(frozen=True)
class Waiting:
    """Something that takes its time. Plain data: it goes through a trigger's arguments.

    :param kind: a key of `everstep.provision.waits.KINDS`
    :param arguments: of that kind; JSON only
    :param what: what is waited for, in words
    :param seconds: how long at most
    """

    kind: str
    arguments: Mapping[str, Any]
    what: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"kind": self.kind, "arguments": dict(self.arguments), "what": self.what, "seconds": self.seconds}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Waiting:
        """Return what `as_dict` gave."""
        return cls(data["kind"], data["arguments"], data["what"], float(data["seconds"]))


@dataclass(frozen=True)
class Change:
    """One change to one object. Doing it twice is harmless: `act` finds out for itself what is left to do.

    :param object: the object, as findings name it, such as `bucket acme-checkpoints`
    :param action: one word: create, update, install, grant, resize, recreate, delete …
    :param found: what is there now
    :param wanted: what will be there
    :param act: does it; returns what has to be waited for before anything else is looked at, or None. Raises Conflict
        when somebody else was faster
    :param commands: shell commands that do the same, ready to paste
    :param terraform: HCL that declares the same; empty where Terraform has no word for it
    :param note: what it costs or what it takes down with it; empty where it does neither
    """

    object: str
    action: str
    found: str
    wanted: str
    act: Callable[[], Waiting | None] = field(repr=False, compare=False)
    commands: tuple[str, ...] = ()
    terraform: str = ""
    note: str = ""

    def __str__(self) -> str:
        text = f"{self.action} {self.object}: {self.found} -> {self.wanted}"
        return f"{text} ({self.note})" if self.note else text

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for XCom and JSON."""
        return {
            "object": self.object,
            "action": self.action,
            "found": self.found,
            "wanted": self.wanted,
            "commands": list(self.commands),
            "terraform": self.terraform,
            "note": self.note,
        }


@dataclass(frozen=True)
class Look:
    """How things stand in one step.

    :param findings: what a person should know; an error means that nothing may be changed
    :param changes: what is left to do, in order; none when all is as the cluster file says
    :param waiting: something that is under way already, by whomever it was started; it is joined, not started again
    """

    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    waiting: Waiting | None = None


class Step(Protocol):
    """One part of provisioning."""

    @property
    def title(self) -> str:
        """Return what the step is about, such as `buckets`."""
        ...

    def look(self) -> Look:
        """Look at the present state, and change nothing. Raises RemoteError where it can't be looked at."""
        ...
