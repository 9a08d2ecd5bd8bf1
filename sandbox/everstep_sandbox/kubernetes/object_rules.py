"""What a write may change and what a deletion does to an object: the rules that hold for every kind. Pure."""

from __future__ import annotations

import datetime
from typing import Any, Literal

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object, clone, now, timestamp
from everstep_sandbox.kubernetes.resources import Resource

Propagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

# Fields of the metadata that only the store sets.
_SYSTEM_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "resourceVersion",
    "generateName",
)


def for_update(info: Resource, old: Object, given: Object, subresource: str | None) -> Object:
    """The object that an update asks for, with what it may not touch taken from the stored one. Raises ApiError 422."""
    if subresource == "status":
        new = clone(old)
        if "status" in given:
            new["status"] = clone(given["status"])
        else:
            new.pop("status", None)
        return new
    new = clone(given)
    new["apiVersion"], new["kind"] = info.api_version, info.kind
    for field in _SYSTEM_METADATA:
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]
        else:
            new["metadata"].pop(field, None)
    if old["metadata"].get("deletionTimestamp"):
        _refuse_new_finalizers(info, new["metadata"], old["metadata"])
    if info.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    return new


def _refuse_new_finalizers(info: Resource, new: dict[str, Any], old: dict[str, Any]) -> None:
    known = old.get("finalizers") or []
    added = [finalizer for finalizer in new.get("finalizers") or [] if finalizer not in known]
    if added:
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        why = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        raise errors.invalid(
            info, old["name"], [Cause("metadata.finalizers", f"Forbidden: {why}", "FieldValueForbidden")]
        )


def grace_seconds(info: Resource, obj: Object, asked: float | None) -> float:
    """Only pods that a kubelet may still be running get a grace period."""
    if info.plural != "pods" or not obj["spec"].get("nodeName"):
        return 0
    if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked
    return float(obj["spec"].get("terminationGracePeriodSeconds", 30))


def mark_deleted(obj: Object, grace: float, propagation: Propagation | None) -> None:
    """Marks an object as being deleted, in place: when, with what grace period, under which finalizers."""
    meta = obj["metadata"]
    if propagation is not None:
        finalizers = [f for f in meta.get("finalizers") or () if f not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
        if propagation == "Foreground":
            finalizers.append(FOREGROUND_FINALIZER)
        elif propagation == "Orphan":
            finalizers.append(ORPHAN_FINALIZER)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
    if meta.get("deletionTimestamp"):
        # A later delete can shorten the wait, never lengthen it.
        if grace >= meta.get("deletionGracePeriodSeconds", 0):
            return
        meta["deletionGracePeriodSeconds"] = int(grace)
        meta["deletionTimestamp"] = timestamp()
        return
    meta["deletionTimestamp"] = timestamp(now() + datetime.timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = int(grace)
    if "generation" in meta:
        meta["generation"] += 1
