"""OpenAPI v2 and v3 documents: enough for kubectl to validate, apply and explain.

They describe custom resources also while these have no definition: only discovery says what is served.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from everstep_sandbox.kubernetes.custom_schemas import Schema
from everstep_sandbox.kubernetes.http.schemas import closure, schema
from everstep_sandbox.kubernetes.resources import RESOURCES, Resource, group_versions

_INFO = {"title": "Kubernetes", "version": "v1.34.1-everstep-sandbox"}
_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def v3_index() -> dict[str, Any]:
    """/openapi/v3: where each group's document is."""
    return {
        "paths": {
            _path(*found): {"serverRelativeURL": f"/openapi/v3/{_path(*found)}?hash=1"} for found in group_versions()
        }
    }


@cache
def v3_document(path: str) -> dict[str, Any] | None:
    """The document of `api/v1` or `apis/<group>/<version>`, or None."""
    resources = [r for r in RESOURCES if _path(r.group, r.version) == path and not r.create_only]
    if not any(_path(r.group, r.version) == path for r in RESOURCES):
        return None
    paths: dict[str, Any] = {}
    for resource in resources:
        paths.update(_v3_paths(resource))
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": _definitions(resources, "#/components/schemas/")},
    }


@lru_cache(maxsize=1)
def v2_document() -> dict[str, Any]:
    """/openapi/v2: definitions of all kinds, and the paths that take patches."""
    resources = [resource for resource in RESOURCES if not resource.create_only]
    paths: dict[str, Any] = {}
    for resource in resources:
        parameters = [{"name": name, "in": "query", "type": "string"} for name in _QUERY]
        paths[_object_path(resource)] = {"patch": {**_operation(resource), "parameters": parameters}}
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": _definitions(resources, "#/definitions/")}


def _object_path(resource: Resource) -> str:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{_path(resource.group, resource.version)}{scope}/{resource.plural}/{{name}}"


def _operation(resource: Resource) -> dict[str, Any]:
    return {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _kind_of(resource),
        "responses": {"200": {"description": "OK"}},
    }


def _kind_of(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _v3_paths(resource: Resource) -> dict[str, Any]:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _QUERY]
    content = {"application/merge-patch+json": {"schema": {"type": "object"}}}
    patch = {**_operation(resource), "parameters": parameters, "requestBody": {"content": content}}
    listing = {**_operation(resource), "x-kubernetes-action": "list"}
    path = _object_path(resource)
    return {path: {"patch": patch}, path.removesuffix("/{name}"): {"get": listing}}


def _definitions(resources: list[Resource], prefix: str) -> dict[str, Any]:
    names = closure([resource.plural for resource in resources])
    definitions = {name: _with_prefix(schema(name), prefix) for name in sorted(names)}
    for resource in resources:
        own: Schema = {**definitions[resource.plural], "x-kubernetes-group-version-kind": [_kind_of(resource)]}
        definitions[resource.plural] = own
    return definitions


def _with_prefix(part: Any, prefix: str) -> Any:
    if isinstance(part, dict):
        return {
            key: prefix + value if key == "$ref" and isinstance(value, str) else _with_prefix(value, prefix)
            for key, value in part.items()
        }
    if isinstance(part, list):
        return [_with_prefix(item, prefix) for item in part]
    return part
