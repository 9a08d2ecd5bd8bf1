"""Server-side apply: each manager's fields are remembered, so that fields it no longer applies go away.

Conflicts are found between managers that apply; fields written by plain updates and patches have no recorded owner
here, while a real server records them too.
"""

from __future__ import annotations

import json
from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.objects import Object, clone, timestamp
from everstep_sandbox.kubernetes.patches import merge_key, structural_merge
from everstep_sandbox.kubernetes.resources import Resource

# A step is a field name, or (merge key, value) for an item of a keyed list.
Step = str | tuple[str, Any]
Path = tuple[Step, ...]

_NOT_OWNED = frozenset({"apiVersion", "kind"})
_IDENTITY = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "managedFields",
        "creationTimestamp",
        "generation",
    }
)


def apply(
    existing: Object | None, applied: Object, manager: str, *, force: bool, resource: Resource, part: str | None
) -> Object:
    """The object after `manager` applied `applied`. Raises ApiError 409 for fields that another manager applied
    with another value, unless forced."""
    configuration = clone(applied)
    configuration.get("metadata", {}).pop("managedFields", None)
    owned = {path: value for path, value in _leaves(configuration) if not _is_identity(path)}
    current = clone(existing) if existing is not None else {"metadata": {}}
    entries = current["metadata"].get("managedFields") or []
    others = [entry for entry in entries if not _is_of(entry, manager, part)]
    if not force:
        _check_conflicts(resource, current, owned, others)
    for entry in entries:
        if _is_of(entry, manager, part):
            held_by_others = {path for other in others for path in _paths(other)}
            for path in _paths(entry):
                if path not in owned and path not in held_by_others:
                    _remove(current, path)
    merged: Object = structural_merge(current, configuration)
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": resource.api_version,
        "time": timestamp(),
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields_v1(list(owned)),
    }
    if part:
        entry["subresource"] = part
    previous = next((found for found in entries if _is_of(found, manager, part)), None)
    if previous is not None and previous["fieldsV1"] == entry["fieldsV1"]:
        # The same fields again: an apply that changes nothing must not be a write.
        entry["time"] = previous["time"]
    taken = {path for path, value in owned.items() if _read(current, path) != value}
    merged["metadata"]["managedFields"] = [*(_without(other, taken) for other in others), entry]
    return merged


def _is_of(entry: dict[str, Any], manager: str, part: str | None) -> bool:
    return entry.get("manager") == manager and entry.get("subresource") == part


def _check_conflicts(resource: Resource, current: Object, owned: dict[Path, Any], others: list[dict[str, Any]]) -> None:
    causes = []
    for other in others:
        for path in _paths(other):
            if path in owned and _read(current, path) != owned[path]:
                causes.append(
                    {
                        "reason": "FieldManagerConflict",
                        "field": _dotted(path),
                        "message": f'conflict with "{other["manager"]}"',
                    }
                )
    if causes:
        fields = ", ".join(cause["field"] for cause in causes)
        plural = "conflict" if len(causes) == 1 else "conflicts"
        raise errors.ApiError(
            409,
            "Conflict",
            f"Apply failed with {len(causes)} {plural}: {causes[0]['message']}: {fields}",
            {"causes": causes},
        )


def _leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list) and path and isinstance(path[-1], str):
        key = merge_key(path[-1], value)
        if key is not None:
            return [leaf for item in value for leaf in _leaves(item, (*path, (key, item[key])))]
    return [(path, value)]


def _is_identity(path: Path) -> bool:
    if path[0] in _NOT_OWNED:
        return True
    return len(path) == 2 and path[0] == "metadata" and path[1] in _IDENTITY


def _fields_v1(paths: list[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(_field_name(step), {})
    return tree


def _field_name(step: Step) -> str:
    if isinstance(step, str):
        return f"f:{step}"
    return "k:" + json.dumps({step[0]: step[1]}, separators=(",", ":"))


def _paths(entry: dict[str, Any]) -> list[Path]:
    found: list[Path] = []

    def walk(node: dict[str, Any], path: Path) -> None:
        if not node and path:
            found.append(path)
        for name, child in node.items():
            if name.startswith("f:"):
                walk(child, (*path, name[2:]))
            elif name.startswith("k:"):
                ((key, value),) = json.loads(name[2:]).items()
                walk(child, (*path, (key, value)))

    walk(entry.get("fieldsV1") or {}, ())
    return found


def _without(entry: dict[str, Any], taken: set[Path]) -> dict[str, Any]:
    return {**entry, "fieldsV1": _fields_v1([path for path in _paths(entry) if path not in taken])}


def _descend(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    key, wanted = step
    if not isinstance(value, list):
        return None
    return next((item for item in value if isinstance(item, dict) and item.get(key) == wanted), None)


def _read(obj: Object, path: Path) -> Any:
    value: Any = obj
    for step in path:
        value = _descend(value, step)
    return value


def _remove(obj: Object, path: Path) -> None:
    """Removes a field, and the objects around it that are left empty. A list item goes with its key."""
    if len(path) > 1 and isinstance(path[-2], tuple) and path[-1] == path[-2][0]:
        path = path[:-1]
    parents: list[Any] = [obj]
    for step in path[:-1]:
        parents.append(_descend(parents[-1], step))
    for parent, step in zip(reversed(parents), reversed(path), strict=True):
        if isinstance(step, str) and isinstance(parent, dict):
            parent.pop(step, None)
        elif isinstance(step, tuple) and isinstance(parent, list):
            parent[:] = [item for item in parent if item.get(step[0]) != step[1]]
        if parent:
            return


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += f".{step}" if isinstance(step, str) else f'[{step[0]}="{step[1]}"]'
    return text
