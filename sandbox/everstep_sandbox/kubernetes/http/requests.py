"""What a request asks for: its path, query, accepted form of answer and body, read once and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.http import protobuf
from everstep_sandbox.kubernetes.resources import Resource, served
from everstep_sandbox.kubernetes.selectors import Predicate, field_predicate, label_predicate

_COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
# Field selectors are served only for these fields, as on a real server.
_SELECTABLE_FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "jobs": frozenset({"status.successful"}),
    "secrets": frozenset({"type"}),
}


@dataclass(frozen=True, slots=True)
class Target:
    """The object or collection that a path names."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None


def parse_path(path: str) -> Target:
    """Reads /api/v1/… and /apis/<group>/<version>/…; raises ApiError 404."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise errors.no_such_path(path)
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    resource = served(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
        raise errors.no_such_path(path)
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else None
    if name is not None and resource.namespaced and namespace is None:
        raise errors.no_such_path(path)
    if subresource is not None and subresource not in resource.subresources:
        raise errors.no_such_path(path)
    return Target(resource, namespace, name, subresource)


class Call:
    """One request to the API, with its query and headers interpreted."""

    def __init__(self, request: web.Request, target: Target) -> None:
        self.request = request
        self.resource = target.resource
        self.namespace = target.namespace
        self.name = target.name
        self.subresource = target.subresource
        self.user_agent = request.headers.get("User-Agent", "unknown")
        self.query = request.query
        self.form = answer_form(request.headers.get("Accept", ""))

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def strict(self) -> bool:
        """Unknown fields are to be refused; a real server only warns by default."""
        return self.query.get("fieldValidation") == "Strict"

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")

    def integer(self, name: str) -> int | None:
        """A whole number from the query, or None; raises ApiError 400."""
        text = self.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise errors.bad_request(f"query parameter {name}: found {text!r}, expected a whole number") from None

    def predicate(self) -> Predicate | None:
        """The label and field selectors of the query as one test, or None where all objects match."""
        supported = _COMMON_FIELDS | _SELECTABLE_FIELDS.get(self.resource.plural, frozenset())
        labels = label_predicate(self.query.get("labelSelector"))
        fields = field_predicate(self.query.get("fieldSelector"), supported)
        if labels and fields:
            by_labels, by_fields = labels, fields
            return lambda obj: by_labels(obj) and by_fields(obj)
        return labels or fields

    async def body(self) -> Any:
        """The decoded JSON or YAML body, {} when empty; raises ApiError 400 or 415."""
        return decode(await self.request.read(), self.request.headers.get("Content-Type", ""))


def decode(raw: bytes, content_type: str) -> Any:
    """JSON, YAML or protobuf by content type; raises ApiError 400 for what can't be parsed, 415 for other forms."""
    if not raw.strip():
        return {}
    if content_type.startswith(protobuf.CONTENT_TYPE):
        return protobuf.decode_object(raw)
    if "cbor" in content_type:
        raise errors.unsupported_media_type(["application/json", "application/yaml"])
    try:
        return json.loads(raw)
    except ValueError as error:
        if "yaml" not in content_type:
            raise errors.bad_request(f"the body of the request is not JSON: {error}") from error
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"the body of the request is neither JSON nor YAML: {error}") from error


def answer_form(accept: str) -> str:
    """ "Table", "PartialObjectMetadata" or "" for the object itself: the first accepted form that is served."""
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in ("application/json", "*/*", "application/*"):
            continue
        asked = next((item[3:] for item in parameters if item.startswith("as=")), "")
        if asked in ("", "Table"):
            return asked
        if asked.startswith("PartialObjectMetadata"):
            return "PartialObjectMetadata"
    return ""
