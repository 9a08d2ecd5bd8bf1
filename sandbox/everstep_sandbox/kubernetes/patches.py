"""The four kinds of patch: JSON merge (RFC 7386), JSON patch (RFC 6902), strategic merge, and server-side apply's
structural merge. All are pure: they return a new document and leave their inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep_sandbox.kubernetes.errors import ApiError, bad_request
from everstep_sandbox.kubernetes.objects import Object, clone

# Lists that are merged item by item, and the field that identifies an item (from the API types' patchMergeKey).
# Lists not named here are replaced whole, tolerations and taints among them, as on a real server.
_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "replicatedJobs": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_PRIMITIVES = frozenset({"finalizers"})


def json_merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = json_merge(result.get(key), value)
    return result


def json_patch(target: Object, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902; a failing operation or test raises ApiError 422 as the API server does."""
    document: Any = clone(target)
    for operation in operations:
        action = _OPERATIONS.get(str(operation.get("op")))
        if action is None or "path" not in operation:
            raise bad_request(
                f"JSON patch operation {operation!r}: expected path and op (add, remove, replace, move, copy or test)"
            )
        try:
            document = action(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ApiError(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: "
                f"JSON patch {operation['op']} at {operation['path']!r}: {error}",
            ) from error
    return document


def _pointer(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise ValueError("path must start with '/'")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _read(document: Any, path: str) -> Any:
    for step in _pointer(path):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _parent(document: Any, path: str) -> tuple[Any, str]:
    *parents, last = _pointer(path)
    for step in parents:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document, last


def _add(document: Any, operation: dict[str, Any]) -> Any:
    if not operation["path"]:
        return clone(operation["value"])
    parent, last = _parent(document, operation["path"])
    if not isinstance(parent, list):
        parent[last] = clone(operation["value"])
        return document
    index = len(parent) if last == "-" else int(last)
    if not 0 <= index <= len(parent):
        raise IndexError(f"index {index} outside a list of {len(parent)}")
    parent.insert(index, clone(operation["value"]))
    return document


def _remove(document: Any, operation: dict[str, Any]) -> Any:
    parent, last = _parent(document, operation["path"])
    del parent[int(last) if isinstance(parent, list) else last]
    return document


def _replace(document: Any, operation: dict[str, Any]) -> Any:
    _read(document, operation["path"])
    if not operation["path"]:
        return clone(operation["value"])
    parent, last = _parent(document, operation["path"])
    parent[int(last) if isinstance(parent, list) else last] = clone(operation["value"])
    return document


def _copy(document: Any, operation: dict[str, Any]) -> Any:
    return _add(document, {"path": operation["path"], "value": _read(document, operation["from"])})


def _move(document: Any, operation: dict[str, Any]) -> Any:
    value = _read(document, operation["from"])
    return _add(_remove(document, {"path": operation["from"]}), {"path": operation["path"], "value": value})


def _test(document: Any, operation: dict[str, Any]) -> Any:
    found = _read(document, operation["path"])
    if found != operation["value"]:
        raise ValueError(f"test failed: found {found!r}, expected {operation['value']!r}")
    return document


_OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "copy": _copy,
    "move": _move,
    "test": _test,
}


def strategic_merge(target: Any, patch: Any) -> Any:
    """Strategic merge patch with its directives ($patch, $deleteFromPrimitiveList/…, $retainKeys)."""
    if not isinstance(patch, dict):
        return clone(patch)
    if patch.get("$patch") == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merge_lists(key, result.get(key), value, strategic_merge)
        else:
            result[key] = strategic_merge(result.get(key), value)
    return result


def structural_merge(target: Any, applied: Any) -> Any:
    """Server-side apply's merge: objects merge, keyed lists merge by key, everything else replaces."""
    if not isinstance(applied, dict):
        return clone(applied)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in applied.items():
        if isinstance(value, list):
            result[key] = _merge_lists(key, result.get(key), value, structural_merge)
        else:
            result[key] = structural_merge(result.get(key), value)
    return result


def merge_key(field: str, items: list[Any]) -> str | None:
    """The field that identifies an item of the list `field`, or None where the list is replaced whole."""
    for key in _MERGE_KEYS.get(field, ()):
        if items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return None


def _merge_lists(
    field: str, current: list[Any] | None, patch: list[Any], merge: Callable[[Any, Any], Any]
) -> list[Any]:
    current = current or []
    if field in _MERGED_PRIMITIVES:
        return [*current, *(item for item in patch if item not in current)]
    changes = [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    key = merge_key(field, changes)
    if key is None or len(changes) != len(patch):
        return [clone(item) for item in changes]
    result = list(current)
    for item in patch:
        position = next(
            (index for index, found in enumerate(result) if isinstance(found, dict) and found.get(key) == item[key]),
            None,
        )
        if item.get("$patch") == "delete":
            if position is not None:
                del result[position]
        elif position is None:
            result.append(merge({}, item))
        else:
            result[position] = merge(result[position], item)
    return result
