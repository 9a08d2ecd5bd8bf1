"""Schemas of all kinds: for OpenAPI (kubectl's validation and explain) and for strict field validation.

Built-in types are read from the official Python client's models, which carry the API's own field names, types and
descriptions; importing them takes a second or two, so they are loaded once, in a thread, when first needed.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.custom_schemas import CUSTOM_SCHEMAS, Schema
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import RESOURCES, Resource

_SCALARS: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytearray": {"type": "string", "format": "byte"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_LIST = re.compile(r"^list\[(.+)\]$")
_MAP = re.compile(r"^dict[\[(]str, (.+)[\])]$")
# Types of the API that the client's models name otherwise.
_MODEL_NAMES = {"Event": "CoreV1Event", "Endpoints": "V1Endpoints"}


async def load() -> dict[str, Schema]:
    """All schemas by name: a resource's plural for a kind, the model's name for a part of it."""
    return await asyncio.to_thread(_load)


@lru_cache(maxsize=1)
def _load() -> dict[str, Schema]:
    from kubernetes.client import models

    found: dict[str, Schema] = {}

    def add(model_name: str) -> None:
        if model_name in found:
            return
        model = getattr(models, model_name)
        schema: Schema = {"type": "object", "properties": {}}
        found[model_name] = schema
        for attribute, type_name in model.openapi_types.items():
            description = _description(getattr(model, attribute).fget.__doc__ or "")
            property_schema = of_type(type_name)
            if "$ref" in property_schema:
                property_schema = {"allOf": [property_schema]}
            schema["properties"][model.attribute_map[attribute]] = {**property_schema, "description": description}

    def of_type(type_name: str) -> Schema:
        if type_name in _SCALARS:
            return dict(_SCALARS[type_name])
        if match := _LIST.match(type_name):
            return {"type": "array", "items": of_type(match[1])}
        if match := _MAP.match(type_name):
            return {"type": "object", "additionalProperties": of_type(match[1])}
        add(type_name)
        return {"$ref": type_name}

    for resource in RESOURCES:
        if resource.custom:
            found[resource.plural] = CUSTOM_SCHEMAS[resource.plural]
            for name in _references(CUSTOM_SCHEMAS[resource.plural]):
                add(name)
        else:
            model_name = _MODEL_NAMES.get(resource.kind, f"V1{resource.kind}")
            add(model_name)
            found[resource.plural] = found[model_name]
    return found


def _description(docstring: str) -> str:
    """The field's own sentence: what lies between the generator's first line and its :return:."""
    body = docstring.partition(":return:")[0].replace("# noqa: E501", "")
    return " ".join(body.partition("\n")[2].split())


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in schema.values()))
    if isinstance(schema, list):
        return set().union(*(_references(item) for item in schema))
    return set()


def closure(schemas: dict[str, Schema], names: list[str]) -> set[str]:
    """The names and everything that they refer to."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(_references(schemas[name]))
    return reached


async def check_fields(resource: Resource, obj: Object) -> None:
    """Strict field validation: raises ApiError 400 that names every unknown field."""
    if resource.create_only:
        return
    schemas = await load()
    unknown = _unknown_fields(obj, schemas[resource.plural], "", schemas)
    if unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {listed}"
        )


def _unknown_fields(value: Any, schema: Schema, path: str, schemas: dict[str, Schema]) -> list[str]:
    if "allOf" in schema:
        schema = schema["allOf"][0]
    if "$ref" in schema:
        schema = schemas[schema["$ref"]]
    if isinstance(value, list) and "items" in schema:
        return [field for index, item in enumerate(value)
                for field in _unknown_fields(item, schema["items"], f"{path}[{index}]", schemas)]
    if not isinstance(value, dict):
        return []
    if "additionalProperties" in schema:
        return [field for key, item in value.items()
                for field in _unknown_fields(item, schema["additionalProperties"], f"{path}.{key}", schemas)]
    if "properties" not in schema:
        return []
    found: list[str] = []
    for key, item in value.items():
        field = f"{path}.{key}" if path else key
        if key in schema["properties"]:
            found += _unknown_fields(item, schema["properties"][key], field, schemas)
        else:
            found.append(field)
    return found
