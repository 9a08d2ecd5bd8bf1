"""GET of one object and of collections: pages over a frozen snapshot, tables, partial metadata."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.http.requests import Call
from everstep_sandbox.kubernetes.http.tables import table
from everstep_sandbox.kubernetes.objects import Object, new_uid
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_KEPT_SNAPSHOTS = 200


class Lister:
    """Answers reads. Pages of one list show one moment, as etcd's do; a forgotten snapshot is a 410."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, tuple[int, list[Object]]] = OrderedDict()

    def get(self, call: Call) -> Object:
        found = self._store.peek(call.resource.plural, call.namespace, call.name or "")
        if found is None:
            raise errors.not_found(call.resource, call.name or "")
        return presented(call, found, self._store.version)

    def list_objects(self, call: Call) -> Object:
        check_version_is_reached(call, self._store.version)
        limit = call.integer("limit") or 0
        token = call.query.get("continue")
        if token:
            snapshot_id, start = _read_token(token)
            version, items = self._snapshot(snapshot_id)
        else:
            snapshot_id, start, version = new_uid(), 0, self._store.version
            items = self._store.list(call.resource.plural, call.namespace, where=call.predicate())
        end = start + limit if limit else len(items)
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if end < len(items):
            self._snapshots[snapshot_id] = (version, items)
            self._snapshots.move_to_end(snapshot_id)
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
            meta["continue"] = _token(snapshot_id, end)
            meta["remainingItemCount"] = len(items) - end
        return _collection(call, items[start:end], meta)

    def forget_snapshots(self) -> None:
        """What compaction does to lists that are being paged through."""
        self._snapshots.clear()

    def _snapshot(self, snapshot_id: str) -> tuple[int, list[Object]]:
        try:
            return self._snapshots[snapshot_id]
        except KeyError:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a "
                "new list without the continue parameter."
            ) from None


def check_version_is_reached(call: Call, current: int) -> None:
    """Raises ApiError 504 for a version from the future (a client that outlived a wiped sandbox)."""
    text = call.query.get("resourceVersion", "")
    try:
        asked = int(text or 0)
    except ValueError:
        raise errors.bad_request(f"resourceVersion: Invalid value: {text!r}: expected a whole number") from None
    if asked > current:
        raise errors.ApiError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {asked}, current: {current}",
            {
                "retryAfterSeconds": 1,
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            },
        )


def presented(call: Call, obj: Object, version: int) -> Object:
    """One object in the form that the client asked for."""
    if call.form == "Table":
        return table(
            call.resource,
            [obj],
            {"resourceVersion": obj["metadata"]["resourceVersion"]},
            include_object=call.query.get("includeObject"),
        )
    if call.form == "PartialObjectMetadata":
        return _partial(obj)
    return obj


def _collection(call: Call, items: list[Object], meta: dict[str, Any]) -> Object:
    if call.form == "Table":
        return table(call.resource, items, meta, include_object=call.query.get("includeObject"))
    if call.form == "PartialObjectMetadata":
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "items": [_partial(item) for item in items],
        }
    return {
        "kind": f"{call.resource.kind}List",
        "apiVersion": call.resource.api_version,
        "metadata": meta,
        "items": [_as_item(call.resource, item) for item in items],
    }


def _as_item(resource: Resource, obj: Object) -> Object:
    """Lists of built-in kinds leave out each item's kind and apiVersion; those of custom resources keep them."""
    if resource.custom:
        return obj
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _token(snapshot_id: str, start: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([snapshot_id, start]).encode()).decode()


def _read_token(token: str) -> tuple[str, int]:
    try:
        snapshot_id, start = json.loads(base64.urlsafe_b64decode(token.encode()))
        return str(snapshot_id), int(start)
    except ValueError:
        raise errors.bad_request("continue key is not valid: it was not issued by this server") from None
