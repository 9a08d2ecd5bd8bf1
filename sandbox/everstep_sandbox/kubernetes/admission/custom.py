"""Custom resources: defaults that their schemas declare, unknown fields pruned, wrong types refused."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.custom_schemas import CUSTOM_SCHEMAS, Schema, prune, type_errors
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """What a structural schema does. Raises ApiError 422 with all findings."""
    schema = CUSTOM_SCHEMAS.get(resource.plural)
    if schema is None:
        return
    prune(new, schema)
    found = type_errors(new, schema, "")
    if found:
        causes = [Cause(field, message, "FieldValueTypeInvalid") for field, message in found]
        raise errors.invalid(resource, str(new["metadata"].get("name", "")), causes)
    _set_defaults(new, schema)


def _set_defaults(value: Any, schema: Schema) -> None:
    if isinstance(value, dict):
        for key, child in schema.get("properties", {}).items():
            if key not in value and "default" in child:
                value[key] = clone(child["default"])
            if key in value:
                _set_defaults(value[key], child)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            _set_defaults(item, schema["items"])
