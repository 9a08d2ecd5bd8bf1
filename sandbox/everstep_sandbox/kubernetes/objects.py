"""Plain JSON objects as Kubernetes keeps them: copying, metadata access, timestamps, names."""

from __future__ import annotations

import datetime
import secrets
import uuid
from typing import Any, TypeVar, cast

Object = dict[str, Any]
_Json = TypeVar("_Json")

# Kubernetes leaves out vowels and look-alikes so that random suffixes spell nothing.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_NAME_BASE_LENGTH = 58


def clone(value: _Json) -> _Json:
    """Deep copy of JSON data (dicts, lists, scalars), several times faster than copy.deepcopy."""
    kind = type(value)
    if kind is dict:
        return cast(_Json, {key: clone(item) for key, item in cast(dict[str, Any], value).items()})
    if kind is list:
        return cast(_Json, [clone(item) for item in cast(list[Any], value)])
    return value


def metadata(obj: Object) -> dict[str, Any]:
    """The object's metadata, created empty where it is missing."""
    found: dict[str, Any] = obj.setdefault("metadata", {})
    return found


def new_uid() -> str:
    return str(uuid.uuid4())


def random_suffix(length: int = 5) -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(length))


def generated_name(base: str) -> str:
    """A name for metadata.generateName: the base, cut to 58 characters, and five random ones."""
    return base[:_GENERATED_NAME_BASE_LENGTH] + random_suffix()


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def timestamp(moment: datetime.datetime | None = None) -> str:
    """metav1.Time: RFC 3339, whole seconds, UTC."""
    return (moment or now()).astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime.datetime | None = None) -> str:
    """metav1.MicroTime: RFC 3339 with microseconds, UTC."""
    return (moment or now()).astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> datetime.datetime:
    """Reads either form of timestamp; raises ValueError."""
    parsed = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)


def set_condition(obj: Object, kind: str, status: str, *, reason: str = "", message: str = "") -> bool:
    """Sets a status condition in place and tells whether anything changed.

    Its lastTransitionTime moves only when the status does.
    """
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": kind, "status": status}
    if reason:
        wanted["reason"] = reason
    if message:
        wanted["message"] = message
    for index, found in enumerate(conditions):
        if found.get("type") != kind:
            continue
        if {key: found.get(key) for key in ("type", "status", "reason", "message") if found.get(key)} == wanted:
            return False
        moved = found.get("status") != status or "lastTransitionTime" not in found
        wanted["lastTransitionTime"] = timestamp() if moved else found["lastTransitionTime"]
        conditions[index] = wanted
        return True
    conditions.append({**wanted, "lastTransitionTime": timestamp()})
    return True
