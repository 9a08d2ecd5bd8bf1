"""Garbage collection: dependents of deleted owners, foreground and orphan deletion, contents of deleted namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import datetime

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.object_rules import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Propagation
from everstep_sandbox.kubernetes.objects import Object, clone, now, parse_timestamp
from everstep_sandbox.kubernetes.resources import BY_PLURAL, of_kind
from everstep_sandbox.kubernetes.store import Store

_AGENT = "generic-garbage-collector"
_EVENT_LIFETIME = datetime.timedelta(hours=1)
_EVENT_CHECK_SECONDS = 60


async def run(store: Store) -> None:
    """Collects for ever, woken by the store's changes. At the start it looks at everything once."""
    collector = _Collector(store)
    subscription = store.subscribe()
    collector.look_at_all()
    async for change in subscription:
        if change.type == "DELETED":
            collector.forget(change.resource, change.object)
            collector.owner_is_gone(change.resource, change.object)
        else:
            collector.look_at(change.resource, change.object)


async def expire_events(store: Store) -> None:
    """Deletes events an hour after they were last seen, as the API server's default does; for ever."""
    while True:
        oldest = now() - _EVENT_LIFETIME
        for event in store.list("events"):
            meta = event["metadata"]
            seen = event.get("lastTimestamp") or event.get("eventTime") or meta["creationTimestamp"]
            if parse_timestamp(seen) < oldest:
                store.delete("events", meta["namespace"], meta["name"], user_agent=_AGENT)
        await asyncio.sleep(_EVENT_CHECK_SECONDS)


class _Collector:
    """Knows which objects name which owners, by uid."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dependents: dict[str, dict[str, tuple[str, str | None, str]]] = {}
        """Owner's uid -> dependent's uid -> (plural, namespace, name)."""
        self._uids: set[str] = set()

    def look_at_all(self) -> None:
        everything = list(self._store.all_objects())
        self._uids = {obj["metadata"]["uid"] for _, obj in everything}
        for plural, obj in everything:
            self.look_at(plural, obj)

    def look_at(self, plural: str, obj: Object) -> None:
        """Does what a new or changed object asks for."""
        meta = obj["metadata"]
        self._uids.add(meta["uid"])
        owners = meta.get("ownerReferences") or ()
        for owner in owners:
            self._dependents.setdefault(owner["uid"], {})[meta["uid"]] = (plural, meta.get("namespace"), meta["name"])
        if owners and not any(self._exists(owner["uid"]) for owner in owners):
            self._delete(plural, meta.get("namespace"), meta["name"], meta["uid"], "Background")
            return
        if not meta.get("deletionTimestamp"):
            return
        finalizers = meta.get("finalizers") or ()
        if FOREGROUND_FINALIZER in finalizers:
            self._advance_foreground(plural, obj)
        if ORPHAN_FINALIZER in finalizers:
            self._orphan_dependents(obj)
            self._drop_finalizer(plural, obj, ORPHAN_FINALIZER)

    def forget(self, plural: str, obj: Object) -> None:
        """A removed object no longer holds back an owner that waits for its dependents."""
        meta = obj["metadata"]
        self._uids.discard(meta["uid"])
        for owner in meta.get("ownerReferences") or ():
            dependents = self._dependents.get(owner["uid"], {})
            dependents.pop(meta["uid"], None)
            resource = of_kind(owner["apiVersion"], owner["kind"])
            if resource is None:
                continue
            namespace = meta.get("namespace") if resource.namespaced else None
            found = self._store.peek(resource.plural, namespace, owner["name"])
            if found is not None and found["metadata"]["uid"] == owner["uid"]:
                self.look_at(resource.plural, found)

    def owner_is_gone(self, plural: str, obj: Object) -> None:
        """Deletes in the background what the removed object alone owned; empties a removed namespace."""
        for uid, (kind, namespace, name) in list(self._dependents.pop(obj["metadata"]["uid"], {}).items()):
            found = self._store.peek(kind, namespace, name)
            if found is None or found["metadata"]["uid"] != uid:
                continue
            owners = found["metadata"].get("ownerReferences") or ()
            # One without any owner has been orphaned meanwhile.
            if owners and not any(self._exists(owner["uid"]) for owner in owners):
                self._delete(kind, namespace, name, uid, "Background")
        if plural == "namespaces":
            for kind, found in self._store.all_objects():
                meta = found["metadata"]
                if BY_PLURAL[kind].namespaced and meta["namespace"] == obj["metadata"]["name"]:
                    self._delete(kind, meta["namespace"], meta["name"], meta["uid"], "Background")

    def _exists(self, uid: str) -> bool:
        return uid in self._uids

    def _advance_foreground(self, plural: str, owner: Object) -> None:
        """Deletes the dependents; once none is left that blocks the owner, lets the owner go."""
        blocked = False
        for uid, (kind, namespace, name) in list(self._dependents.get(owner["metadata"]["uid"], {}).items()):
            found = self._store.peek(kind, namespace, name)
            if found is None or found["metadata"]["uid"] != uid:
                continue
            blocked = blocked or _blocks(found, owner)
            if not found["metadata"].get("deletionTimestamp"):
                self._delete(kind, namespace, name, uid, "Foreground" if self._dependents.get(uid) else "Background")
        if not blocked:
            self._drop_finalizer(plural, owner, FOREGROUND_FINALIZER)

    def _orphan_dependents(self, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for kind, namespace, name in self._dependents.pop(uid, {}).values():
            found = self._store.get(kind, namespace, name)
            if found is None:
                continue
            kept = [ref for ref in found["metadata"].get("ownerReferences") or () if ref["uid"] != uid]
            found["metadata"]["ownerReferences"] = kept
            if not kept:
                del found["metadata"]["ownerReferences"]
            self._store.update(kind, namespace, found, user_agent=_AGENT)

    def _drop_finalizer(self, plural: str, obj: Object, finalizer: str) -> None:
        changed = clone(obj)
        meta = changed["metadata"]
        meta["finalizers"] = [found for found in meta["finalizers"] if found != finalizer]
        # A change that overtook this one is looked at in its turn.
        with contextlib.suppress(ApiError):
            self._store.update(plural, meta.get("namespace"), changed, user_agent=_AGENT)

    def _delete(self, plural: str, namespace: str | None, name: str, uid: str, propagation: Propagation) -> None:
        found = self._store.peek(plural, namespace, name)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        with contextlib.suppress(ApiError):
            self._store.delete(plural, namespace, name, propagation=propagation, uid=uid, user_agent=_AGENT)


def _blocks(dependent: Object, owner: Object) -> bool:
    return any(
        reference["uid"] == owner["metadata"]["uid"] and reference.get("blockOwnerDeletion")
        for reference in dependent["metadata"].get("ownerReferences") or ()
    )
