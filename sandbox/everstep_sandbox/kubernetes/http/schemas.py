"""Schemas of all kinds: for OpenAPI (kubectl's validation and explain) and for strict field validation.

Built-in types come from the official Python client's models, which carry the API's own field names, types and
descriptions. Their source is read, one model at a time and when needed: importing the client takes seconds.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.custom_schemas import CUSTOM_SCHEMAS, Schema
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import BY_PLURAL, Resource

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
_IMPORTED_MODEL = re.compile(r"^from kubernetes\.client\.models\.(\w+) import (\w+)", re.MULTILINE)
# A property of a model: its name, and between the generator's first line and `:return:` the field's description.
_GETTER = re.compile(r"    def (\w+)\(self\):\n +\"\"\"Gets the [^\n]*\n(.*?):return:", re.DOTALL)
# Types of the API that the client's models name otherwise.
_MODEL_NAMES = {"Event": "CoreV1Event", "Endpoints": "V1Endpoints"}


@cache
def schema(name: str) -> Schema:
    """The schema of a resource's plural, or of a model of the client such as V1PodSpec."""
    resource = BY_PLURAL.get(name)
    if resource is None:
        return _read_model(name)
    if resource.custom:
        return CUSTOM_SCHEMAS[name]
    return schema(_MODEL_NAMES.get(resource.kind, f"V1{resource.kind}"))


@lru_cache(maxsize=1)
def _model_files() -> dict[str, Path]:
    """Where each model's source is, by the model's name."""
    package = importlib.util.find_spec("kubernetes")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("The package `kubernetes` is missing; install everstep[sandbox].")
    folder = Path(package.submodule_search_locations[0]) / "client" / "models"
    index = (folder / "__init__.py").read_text(encoding="utf-8")
    return {model: folder / f"{module}.py" for module, model in _IMPORTED_MODEL.findall(index)}


def _read_model(name: str) -> Schema:
    source = _model_files()[name].read_text(encoding="utf-8")
    types, field_names = (
        ast.literal_eval(found[1]) if (found := re.search(rf"    {table} = (\{{.*?\}})\n", source, re.DOTALL)) else {}
        for table in ("openapi_types", "attribute_map")
    )
    descriptions = {
        attribute: " ".join(text.replace("# noqa: E501", "").split()) for attribute, text in _GETTER.findall(source)
    }
    properties: dict[str, Schema] = {}
    for attribute, type_name in types.items():
        of_field = _of_type(type_name)
        # Beside a $ref nothing else may stand.
        of_field = {"allOf": [of_field]} if "$ref" in of_field else of_field
        properties[field_names[attribute]] = {**of_field, "description": descriptions.get(attribute, "")}
    return {"type": "object", "properties": properties}


def _of_type(type_name: str) -> Schema:
    if type_name in _SCALARS:
        return dict(_SCALARS[type_name])
    if match := _LIST.match(type_name):
        return {"type": "array", "items": _of_type(match[1])}
    if match := _MAP.match(type_name):
        return {"type": "object", "additionalProperties": _of_type(match[1])}
    return {"$ref": type_name}


def _references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in part.values()))
    if isinstance(part, list):
        return set().union(*(_references(item) for item in part))
    return set()


def closure(names: list[str]) -> set[str]:
    """The names and everything that they refer to."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(_references(schema(name)))
    return reached


def check_fields(resource: Resource, obj: Object) -> None:
    """Strict field validation: raises ApiError 400 that names every unknown field."""
    if resource.create_only:
        return
    unknown = _unknown_fields(obj, schema(resource.plural), "")
    if unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {listed}"
        )


def _unknown_fields(value: Any, expected: Schema, path: str) -> list[str]:
    if "allOf" in expected:
        expected = expected["allOf"][0]
    if "$ref" in expected:
        expected = schema(expected["$ref"])
    if isinstance(value, list) and "items" in expected:
        return [
            field
            for index, item in enumerate(value)
            for field in _unknown_fields(item, expected["items"], f"{path}[{index}]")
        ]
    if not isinstance(value, dict):
        return []
    if "additionalProperties" in expected:
        return [
            field
            for key, item in value.items()
            for field in _unknown_fields(item, expected["additionalProperties"], f"{path}.{key}")
        ]
    if "properties" not in expected:
        return []
    found: list[str] = []
    for key, item in value.items():
        field = f"{path}.{key}" if path else key
        if key in expected["properties"]:
            found += _unknown_fields(item, expected["properties"][key], field)
        else:
            found.append(field)
    return found
