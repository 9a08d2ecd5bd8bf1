"""Short ways to what Kubernetes objects say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from everstep.doctor.diagnosis import quote

Object = Mapping[str, Any]

_POD_NAME = re.compile(r'pods "[^"]+"')


def name(obj: Object) -> str:
    """Return an object's name."""
    return str((obj.get("metadata") or {}).get("name", ""))


def full_name(obj: Object) -> str:
    """Return namespace and name."""
    namespace = (obj.get("metadata") or {}).get("namespace")
    return f"{namespace}/{name(obj)}" if namespace else name(obj)


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return (obj.get("metadata") or {}).get("labels") or {}


def condition(obj: Object, kind: str) -> Object:
    """Return a condition of an object's status; empty when it has none of that type."""
    for each in (obj.get("status") or {}).get("conditions") or []:
        if each.get("type") == kind:
            return each if isinstance(each, Mapping) else {}
    return {}


def is_true(obj: Object, kind: str) -> bool:
    """Say whether a condition holds."""
    return str(condition(obj, kind).get("status")) == "True"


def moment(text: Any) -> datetime | None:
    """Return a time as Kubernetes and Google write it; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def seconds_since(text: Any, now: datetime) -> float | None:
    """Return how long ago a time was; None when it is none."""
    found = moment(text)
    return None if found is None else (now - found).total_seconds()


def spell(seconds: float) -> str:
    """Return a duration in words that fit its length."""
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def when(event: Object) -> str:
    """Return when an event was last seen."""
    created = (event.get("metadata") or {}).get("creationTimestamp")
    series = (event.get("series") or {}).get("lastObservedTime")
    return str(event.get("lastTimestamp") or series or event.get("eventTime") or created or "")


def about(event: Object) -> tuple[str, str]:
    """Return kind and name of what an event is about."""
    found = event.get("involvedObject") or event.get("regarding") or {}
    return str(found.get("kind", "")), str(found.get("name", ""))


def newest(events: Iterable[Object]) -> list[Object]:
    """Return events, newest first."""
    return sorted(events, key=when, reverse=True)


def told(events: Iterable[Object]) -> Iterator[str]:
    """Yield what events say, each text once, newest first, without names of pods that are new at every try."""
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    for event in newest(events):
        kind, named = about(event)
        text = _POD_NAME.sub("a pod", str(event.get("message", "")))
        said.setdefault((str(event.get("reason", "")), kind, text), {})[named] = None
    for (reason, kind, text), names in said.items():
        first, others = next(iter(names)), len(names) - 1
        yield quote(f"event {reason} of {kind} {first}{f' and {others} others' if others else ''}: {text}")


def container_states(pod: Object) -> Iterator[tuple[str, Object, Object]]:
    """Yield name, present state and last state of each container of a pod, init containers included."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or []:
            yield str(each.get("name", "")), each.get("state") or {}, each.get("lastState") or {}


def tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    """Say whether one of some tolerations lets a pod onto a node with that taint."""
    for each in tolerations:
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        if not each.get("key"):
            if each.get("operator") == "Exists":
                return True
            continue
        if each["key"] != taint.get("key"):
            continue
        if each.get("operator") == "Exists" or (each.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def chosen(selector: Mapping[str, str], obj: Object) -> bool:
    """Say whether an object has all labels of a selector."""
    return selector.items() <= labels_of(obj).items()


def service_account(jobset: Object | None) -> str:
    """Return the ServiceAccount of a JobSet's pods; empty without a JobSet."""
    for job in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or []:
        pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        return str(pod.get("serviceAccountName") or "default")
    return ""
