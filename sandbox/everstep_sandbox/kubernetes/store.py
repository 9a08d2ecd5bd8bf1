"""The sandbox's only store of Kubernetes objects: versions, conflicts, deletion, and a history for watches.

Synchronous and single-threaded: call it from the event loop's thread only. Every committed write raises the one
resourceVersion by one, is on disk before the call returns, appends a line to the write log and reaches every
subscription. Objects returned by `get` and by writes are the caller's own copies; those of `list` and of changes
are shared and must not be changed (clone them first).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from everstep_sandbox.kubernetes import errors, patches
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.history import Change, ChangeType, History, Subscription
from everstep_sandbox.kubernetes.journal import Journal
from everstep_sandbox.kubernetes.object_rules import Propagation, for_update, grace_seconds, mark_deleted
from everstep_sandbox.kubernetes.objects import (
    Object,
    clone,
    generated_name,
    metadata,
    new_uid,
    set_condition,
    timestamp,
)
from everstep_sandbox.kubernetes.resources import BY_PLURAL, Resource
from everstep_sandbox.kubernetes.selectors import Predicate, label_predicate

PatchKind = Literal["merge", "json", "strategic"]


class AdmissionHook(Protocol):
    """Looks at a write before it is committed: may change `new` in place, or refuse by raising ApiError.

    `old` is None on create. Called in the order of registration, with defaults already set.
    """

    def __call__(
        self, store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None
    ) -> None: ...


class Store:
    """All objects of one sandbox directory."""

    def __init__(self, directory: Path, *, history: int = 20_000) -> None:
        """Opens or creates the store; raises RuntimeError when another process has it open."""
        self._journal = Journal(directory)
        self._version = self._journal.version()
        self._objects: dict[str, dict[tuple[str, str], Object]] = {plural: {} for plural in BY_PLURAL}
        for plural, obj in self._journal.objects():
            self._objects[plural][_key(BY_PLURAL[plural], obj)] = obj
        self.history = History(self._version, history)
        self._hooks: list[AdmissionHook] = []

    @property
    def version(self) -> int:
        """The resourceVersion of the last commit."""
        return self._version

    def add_admission(self, hook: AdmissionHook) -> None:
        """Adds a hook that sees every create and update, whether it comes over HTTP or from a controller."""
        self._hooks.append(hook)

    def close(self) -> None:
        self._journal.close()

    # Reading

    def get(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """A copy of one object, or None."""
        found = self._objects[resource].get((namespace or "", name))
        return None if found is None else clone(found)

    def peek(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """The stored object itself, not to be changed, or None."""
        return self._objects[resource].get((namespace or "", name))

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | str | None = None,
        where: Predicate | None = None,
    ) -> list[Object]:
        """Objects sorted by namespace and name; namespace None means all. Shared objects: do not change them."""
        matches = label_predicate(labels)
        return [
            obj
            for key, obj in sorted(self._objects[resource].items(), key=lambda item: item[0])
            if (namespace is None or key[0] == namespace)
            and (matches is None or matches(obj))
            and (where is None or where(obj))
        ]

    def all_objects(self) -> Iterable[tuple[str, Object]]:
        """Every object with its plural, in no order; shared, not to be changed."""
        for plural, objects in self._objects.items():
            for obj in list(objects.values()):
                yield plural, obj

    def subscribe(
        self, resources: Iterable[str] | None = None, *, namespace: str | None = None, since: int | None = None
    ) -> Subscription:
        """Changes after version `since`, by default from now on. List after subscribing and nothing is missed."""
        return self.history.subscribe(resources, namespace=namespace, since=since)

    # Writing

    def create(
        self,
        resource: str,
        namespace: str | None,
        obj: Object,
        *,
        user_agent: str = "controller",
        dry_run: bool = False,
    ) -> Object:
        """Stores a new object and returns it as stored. Raises ApiError (409 AlreadyExists, 403, 422, …)."""
        info = BY_PLURAL[resource]
        new = clone(obj)
        new["apiVersion"], new["kind"] = info.api_version, info.kind
        meta = metadata(new)
        if info.namespaced:
            meta["namespace"] = namespace or meta.get("namespace") or "default"
        else:
            meta.pop("namespace", None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = generated_name(meta["generateName"])
        for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(field, None)
        meta["uid"] = new_uid()
        meta["creationTimestamp"] = timestamp()
        if "spec" in new:
            meta["generation"] = 1
        name = meta.get("name")
        if name and self.peek(resource, meta.get("namespace"), name) is not None:
            raise errors.already_exists(info, name)
        self._admit(info, new, None, None)
        if not dry_run:
            self._commit("ADDED", info, new, None, "create", user_agent)
        return clone(new)

    def update(
        self,
        resource: str,
        namespace: str | None,
        obj: Object,
        *,
        subresource: str | None = None,
        user_agent: str = "controller",
        dry_run: bool = False,
        verb: str = "update",
    ) -> Object:
        """Replaces an object (subresource "status": its status only) and returns it as stored.

        Raises ApiError: 404; 409 Conflict when obj carries a resourceVersion or uid that is not the stored one.
        An update that changes nothing commits nothing.
        """
        info = BY_PLURAL[resource]
        given = obj.get("metadata") or {}
        name = str(given.get("name") or "")
        old = self.peek(resource, namespace if info.namespaced else None, name)
        if old is None:
            raise errors.not_found(info, name)
        if given.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise errors.conflict(info, name)
        if given.get("uid") not in (None, "", old["metadata"]["uid"]):
            found = old["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {found}"
            raise errors.conflict(info, name, why)
        new = for_update(info, old, obj, subresource)
        self._admit(info, new, old, subresource)
        if new == old:
            return clone(old)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not dry_run:
            self._commit_or_remove(info, new, old, verb, user_agent)
        return clone(new)

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        user_agent: str = "controller",
        dry_run: bool = False,
    ) -> Object:
        """Patches the stored object and returns it. Raises ApiError: 404, 409 on a stale version in the patch, 422.

        A patch that names another uid is refused as a change of that field, as the real API server does: 422, not 409.
        """
        info = BY_PLURAL[resource]
        old = self.peek(resource, namespace if info.namespaced else None, name)
        if old is None:
            raise errors.not_found(info, name)
        patched = _PATCHERS[kind](old, patch)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise errors.bad_request(f"The patch of {info.qualified} {name!r} leaves no object with metadata.")
        if (uid := patched["metadata"].get("uid")) not in (None, "", old["metadata"]["uid"]):
            raise errors.invalid(info, name, [Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
        return self.update(
            resource, namespace, patched, subresource=subresource, user_agent=user_agent, dry_run=dry_run, verb="patch"
        )

    def bind(self, namespace: str, pod: str, node: str, *, user_agent: str = "scheduler") -> Object:
        """Assigns a pod to a node. Raises ApiError 404, or 409 when it already has one or is being deleted."""
        info = BY_PLURAL["pods"]
        old = self.peek("pods", namespace, pod)
        if old is None:
            raise errors.not_found(info, pod)
        if old["metadata"].get("deletionTimestamp"):
            raise errors.conflict(info, pod, f"pod {pod} is being deleted, cannot be assigned to a host")
        if old["spec"].get("nodeName"):
            raise errors.conflict(info, pod, f'pod {pod} is already assigned to node "{old["spec"]["nodeName"]}"')
        new = clone(old)
        new["spec"]["nodeName"] = node
        set_condition(new, "PodScheduled", "True")
        self._commit("MODIFIED", info, new, old, "update", user_agent)
        return clone(new)

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        grace_period_seconds: float | None = None,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        user_agent: str = "controller",
        dry_run: bool = False,
    ) -> Object | None:
        """Deletes an object, or marks it as being deleted where a grace period or finalizers keep it for now.

        Returns the marked object, or None when it is gone. `uid` and `resource_version` are preconditions. A
        scheduled pod gets its grace period and is removed by a second delete with grace period 0 (the kubelet's).
        Dependents are deleted by the garbage collector: in the background by default. Raises ApiError (404, 409).
        """
        info = BY_PLURAL[resource]
        old = self.peek(resource, namespace if info.namespaced else None, name)
        if old is None:
            raise errors.not_found(info, name)
        if uid not in (None, old["metadata"]["uid"]):
            raise errors.failed_precondition(info, name, "UID", uid, old["metadata"]["uid"])
        if resource_version not in (None, old["metadata"]["resourceVersion"]):
            found = old["metadata"]["resourceVersion"]
            raise errors.failed_precondition(info, name, "ResourceVersion", resource_version, found)
        new = clone(old)
        mark_deleted(new, grace_seconds(info, old, grace_period_seconds), propagation)
        if new == old:
            return clone(old)
        if dry_run:
            return new
        return self._commit_or_remove(info, new, old, "delete", user_agent)

    def evict(
        self,
        namespace: str,
        pod: str,
        *,
        grace_period_seconds: float | None = None,
        uid: str | None = None,
        user_agent: str = "controller",
    ) -> Object | None:
        """Deletes a pod as the eviction API does: with the condition DisruptionTarget set first. Raises ApiError."""
        found = self.get("pods", namespace, pod)
        if found is not None and uid in (None, found["metadata"]["uid"]):
            set_condition(
                found,
                "DisruptionTarget",
                "True",
                reason="EvictionByEvictionAPI",
                message="Eviction API: evicting",
            )
            self.update("pods", namespace, found, subresource="status", user_agent=user_agent)
        return self.delete(
            "pods", namespace, pod, grace_period_seconds=grace_period_seconds, uid=uid, user_agent=user_agent
        )

    # Committing

    def _admit(self, info: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
        for hook in self._hooks:
            hook(self, info, new, old, subresource)

    def _commit_or_remove(self, info: Resource, new: Object, old: Object, verb: str, user_agent: str) -> Object | None:
        meta = new["metadata"]
        is_due = meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds")
        if is_due and not meta.get("finalizers"):
            self._commit("DELETED", info, new, old, verb, user_agent)
            return None
        self._commit("MODIFIED", info, new, old, verb, user_agent)
        return clone(new)

    def _commit(
        self, type: ChangeType, info: Resource, new: Object, old: Object | None, verb: str, user_agent: str
    ) -> None:
        version = self._version + 1
        meta = new["metadata"]
        meta["resourceVersion"] = str(version)
        key = _key(info, new)
        entry: dict[str, object] = {
            "verb": verb,
            "resource": info.plural,
            "namespace": key[0] or None,
            "name": key[1],
            "uid": meta["uid"],
            "userAgent": user_agent,
        }
        if type == "DELETED":
            entry["removed"] = True
        self._journal.commit(info.plural, *key, None if type == "DELETED" else new, version, entry)
        self._version = version
        if type == "DELETED":
            del self._objects[info.plural][key]
            stored = new
        else:
            stored = clone(new)
            self._objects[info.plural][key] = stored
        self.history.append(Change(type, info.plural, stored, old, version))


_PATCHERS: dict[str, Callable[[Object, Any], Any]] = {
    "merge": patches.json_merge,
    "json": patches.json_patch,
    "strategic": patches.strategic_merge,
}


def _key(info: Resource, obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return (meta.get("namespace", "") if info.namespaced else "", meta["name"])
