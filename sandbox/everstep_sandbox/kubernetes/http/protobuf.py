"""Reads the protobuf bodies that kubectl's own subcommands send (`create namespace`, `auth can-i`, `drain`, …).

Only the kinds and fields that those commands use are known; everything else comes as JSON. Field numbers are those of
the published generated.proto files of k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from everstep_sandbox.kubernetes.errors import bad_request, unsupported_media_type
from everstep_sandbox.kubernetes.objects import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# A field is (name, type): a scalar type, another message's table, or one of these in a list or map.
_Table = dict[int, tuple[str, Any]]
_TEXT, _BYTES, _INTEGER, _BOOLEAN = "text", "bytes", "integer", "boolean"


class _List:
    def __init__(self, item: Any) -> None:
        self.item = item


class _Map:
    def __init__(self, value: str) -> None:
        self.value = value


_OBJECT_META: _Table = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    5: ("uid", _TEXT),
    6: ("resourceVersion", _TEXT),
    11: ("labels", _Map(_TEXT)),
    12: ("annotations", _Map(_TEXT)),
    14: ("finalizers", _List(_TEXT)),
}
_METADATA = ("metadata", _OBJECT_META)
_PRECONDITIONS: _Table = {1: ("uid", _TEXT), 2: ("resourceVersion", _TEXT)}
_DELETE_OPTIONS: _Table = {
    1: ("gracePeriodSeconds", _INTEGER),
    2: ("preconditions", _PRECONDITIONS),
    3: ("orphanDependents", _BOOLEAN),
    4: ("propagationPolicy", _TEXT),
    5: ("dryRun", _List(_TEXT)),
}
_RESOURCE_ATTRIBUTES: _Table = {
    1: ("namespace", _TEXT),
    2: ("verb", _TEXT),
    3: ("group", _TEXT),
    4: ("version", _TEXT),
    5: ("resource", _TEXT),
    6: ("subresource", _TEXT),
    7: ("name", _TEXT),
}
_NON_RESOURCE_ATTRIBUTES: _Table = {1: ("path", _TEXT), 2: ("verb", _TEXT)}
_REVIEW_SPEC: _Table = {
    1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
    2: ("nonResourceAttributes", _NON_RESOURCE_ATTRIBUTES),
}
_ENVIRONMENT: _Table = {1: ("name", _TEXT), 2: ("value", _TEXT)}
_CONTAINER: _Table = {
    1: ("name", _TEXT),
    2: ("image", _TEXT),
    3: ("command", _List(_TEXT)),
    4: ("args", _List(_TEXT)),
    5: ("workingDir", _TEXT),
    7: ("env", _List(_ENVIRONMENT)),
    14: ("imagePullPolicy", _TEXT),
}
_POD_SPEC: _Table = {
    2: ("containers", _List(_CONTAINER)),
    3: ("restartPolicy", _TEXT),
    4: ("terminationGracePeriodSeconds", _INTEGER),
    7: ("nodeSelector", _Map(_TEXT)),
    8: ("serviceAccountName", _TEXT),
}
_POD_TEMPLATE: _Table = {1: _METADATA, 2: ("spec", _POD_SPEC)}
_JOB_SPEC: _Table = {
    1: ("parallelism", _INTEGER),
    2: ("completions", _INTEGER),
    6: ("template", _POD_TEMPLATE),
    7: ("backoffLimit", _INTEGER),
}

_KINDS: dict[str, _Table] = {
    "ConfigMap": {1: _METADATA, 2: ("data", _Map(_TEXT)), 3: ("binaryData", _Map(_BYTES)), 4: ("immutable", _BOOLEAN)},
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: _METADATA, 2: ("deleteOptions", _DELETE_OPTIONS)},
    "Job": {1: _METADATA, 2: ("spec", _JOB_SPEC)},
    "Namespace": {1: _METADATA},
    "PriorityClass": {
        1: _METADATA,
        2: ("value", _INTEGER),
        3: ("globalDefault", _BOOLEAN),
        4: ("description", _TEXT),
        5: ("preemptionPolicy", _TEXT),
    },
    "Secret": {1: _METADATA, 2: ("data", _Map(_BYTES)), 3: ("type", _TEXT), 4: ("stringData", _Map(_TEXT))},
    "SelfSubjectAccessReview": {1: _METADATA, 2: ("spec", _REVIEW_SPEC)},
    "SelfSubjectReview": {1: _METADATA},
    "SelfSubjectRulesReview": {1: _METADATA, 2: ("spec", {1: ("namespace", _TEXT)})},
    "ServiceAccount": {1: _METADATA},
}
_TYPE_META: _Table = {1: ("apiVersion", _TEXT), 2: ("kind", _TEXT)}
_ENVELOPE: _Table = {1: ("typeMeta", _TYPE_META), 2: ("raw", "raw")}


def decode_object(data: bytes) -> Object:
    """The object in the body. Raises ApiError 400 for a broken one, 415 for a kind that only JSON can carry here."""
    if not data.startswith(_MAGIC):
        raise bad_request("the body of the request does not begin as Kubernetes' protobuf does")
    try:
        envelope = _message(memoryview(data)[len(_MAGIC) :], _ENVELOPE)
        type_meta = envelope.get("typeMeta", {})
        table = _KINDS.get(type_meta.get("kind", ""))
        if table is None:
            raise unsupported_media_type(["application/json", "application/yaml"])
        return {**type_meta, **_message(envelope.get("raw", memoryview(b"")), table)}
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"the body of the request is not valid protobuf: {error}") from error


def _message(data: memoryview, table: _Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in table:
            continue
        name, kind = table[number]
        if isinstance(kind, _List):
            found.setdefault(name, []).append(_value(value, kind.item))
        elif isinstance(kind, _Map):
            entry = _message(_bytes(value), {1: ("key", _TEXT), 2: ("value", kind.value)})
            found.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        else:
            decoded = _value(value, kind)
            # The generated Go code writes empty strings that were never set.
            if decoded != "" and decoded != {}:
                found[name] = decoded
    return found


def _value(value: int | memoryview, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _message(_bytes(value), kind)
    if kind == _BOOLEAN:
        return bool(value)
    if kind == _INTEGER:
        number = int(value) if isinstance(value, int) else 0
        return number - (1 << 64) if number >= 1 << 63 else number
    if kind == _TEXT:
        return str(_bytes(value), "utf-8")
    if kind == _BYTES:
        return base64.b64encode(_bytes(value)).decode()
    return _bytes(value)


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("found a number where a length-delimited field was expected")
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, varint or bytes) of every field; fixed-width ones do not occur in the kinds above."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire_type == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError(f"field {number} runs past the end")
            yield number, data[position : position + length]
            position += length
        else:
            raise ValueError(f"field {number} has the unexpected wire type {wire_type}")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, position
        shift += 7
