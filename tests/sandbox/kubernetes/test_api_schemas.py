"""Schemas of built-in kinds, and the bodies that kubectl sends as protobuf."""

from __future__ import annotations

import pytest
from kubernetes.client import models

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.http import schemas
from everstep_sandbox.kubernetes.http.openapi import v2_document, v3_document
from everstep_sandbox.kubernetes.http.protobuf import decode_object
from everstep_sandbox.kubernetes.resources import BY_PLURAL


def test_schemas_read_from_source_name_the_fields_of_the_models() -> None:
    for name in schemas.closure([plural for plural, resource in BY_PLURAL.items() if not resource.create_only]):
        if name in BY_PLURAL:
            continue
        expected = set(getattr(models, name).attribute_map.values())
        assert set(schemas.schema(name)["properties"]) == expected, name


def test_documents_resolve_every_reference() -> None:
    document = v3_document("apis/jobset.x-k8s.io/v1alpha2")
    assert document is not None
    defined = set(document["components"]["schemas"])
    assert {name.rpartition("/")[2] for name in schemas._references(document)} <= defined
    assert {"jobsets", "V1PodSpec"} <= defined
    assert "checkpointconfigurations" in v2_document()["definitions"]
    assert v3_document("apis/nope/v1") is None


def test_fields_inside_maps_are_free_and_others_are_not() -> None:
    pod = {
        "metadata": {"name": "a", "labels": {"any": "thing"}},
        "spec": {"nodeSelector": {"x": "y"}, "containers": [{"name": "a", "env": [{"name": "A", "valeu": "1"}]}]},
    }
    with pytest.raises(ApiError, match=r'unknown field "spec\.containers\[0\]\.env\[0\]\.valeu"$'):
        schemas.check_fields(BY_PLURAL["pods"], pod)


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\0" + field(1, type_meta) + field(2, raw)


def test_protobuf_bodies_are_read() -> None:
    metadata = field(1, b"a") + field(3, b"") + field(11, field(1, b"k") + field(2, b"v"))
    config_map = field(1, metadata) + field(2, field(1, b"x") + field(2, b"1")) + field(4, 1)
    assert decode_object(body("v1", "ConfigMap", config_map)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"k": "v"}},
        "data": {"x": "1"},
        "immutable": True,
    }


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", 400),
        (b"k8s\0\xff", 400),
        (body("v1", "ConfigMap", b"\x0a\x7f"), 400),
        (body("v1", "Pod", b""), 415),
    ],
)
def test_protobuf_bodies_that_are_broken_or_of_unknown_kinds_are_refused(data: bytes, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        decode_object(data)
    assert refused.value.code == code
