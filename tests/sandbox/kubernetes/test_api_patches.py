"""Patches: merge, JSON, strategic, apply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_sandbox.kubernetes.apply import apply
from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.patches import json_merge, json_patch, strategic_merge
from everstep_sandbox.kubernetes.resources import BY_PLURAL

_JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def test_merge_removes_by_null_and_replaces_lists() -> None:
    target = {"a": {"b": 1, "c": 2}, "list": [1, 2], "kept": True}
    patch = {"a": {"b": None, "d": 3}, "list": [3]}
    assert json_merge(target, patch) == {"a": {"c": 2, "d": 3}, "list": [3], "kept": True}
    assert target["a"] == {"b": 1, "c": 2}


@given(_JSON)
def test_merging_a_document_into_nothing_gives_the_document(document: Any) -> None:
    assert json_merge(None, document) == document


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/list/-", "value": 4}, {"list": [1, 2, 4], "a~b/c": 5}),
        ({"op": "add", "path": "/list/0", "value": 4}, {"list": [4, 1, 2], "a~b/c": 5}),
        ({"op": "replace", "path": "/a~0b~1c", "value": 6}, {"list": [1, 2], "a~b/c": 6}),
        ({"op": "remove", "path": "/list/1"}, {"list": [1], "a~b/c": 5}),
        ({"op": "copy", "from": "/list/0", "path": "/first"}, {"list": [1, 2], "a~b/c": 5, "first": 1}),
        ({"op": "move", "from": "/a~0b~1c", "path": "/moved"}, {"list": [1, 2], "moved": 5}),
        ({"op": "test", "path": "/list/0", "value": 1}, {"list": [1, 2], "a~b/c": 5}),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_patch({"list": [1, 2], "a~b/c": 5}, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "test", "path": "/list/0", "value": 9},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "remove", "path": "/list/x"},
    ],
)
def test_a_json_patch_that_cannot_apply_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"list": [1]}, [operation])
    assert refused.value.code == 422


def test_strategic_merges_keyed_lists_and_replaces_others() -> None:
    target = {
        "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}],
        "tolerations": [{"key": "old"}],
    }
    patch = {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
        "containers": [
            {"name": "a", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"},
            {"name": "c", "image": "3"},
        ],
        "tolerations": [{"key": "new"}],
    }
    assert strategic_merge(target, patch) == {
        "containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "c", "image": "3"},
        ],
        "tolerations": [{"key": "new"}],
    }


def test_strategic_directives() -> None:
    assert strategic_merge({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}) == {"a": {"y": 2}}
    assert strategic_merge({"a": {"x": 1}}, {"a": {"$patch": "delete"}}) == {}
    assert strategic_merge({"a": {"x": 1, "y": 2}}, {"a": {"$retainKeys": ["y"], "y": 3}}) == {"a": {"y": 3}}
    assert strategic_merge({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {
        "finalizers": ["b"]
    }
    assert strategic_merge({"finalizers": ["a"]}, {"finalizers": ["b"]}) == {"finalizers": ["a", "b"]}


def applied(existing: Any, spec: dict[str, Any], manager: str = "one", *, force: bool = False) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **spec}
    return apply(existing, body, manager, force=force, resource=BY_PLURAL["configmaps"], part=None)


def test_a_field_no_longer_applied_goes_away_but_others_stay() -> None:
    first = applied(None, {"data": {"x": "1", "y": "2"}})
    first["data"]["theirs"] = "3"
    second = applied(first, {"data": {"x": "1"}})
    assert second["data"] == {"x": "1", "theirs": "3"}
    assert [entry["manager"] for entry in second["metadata"]["managedFields"]] == ["one"]


def test_applying_the_same_again_changes_nothing() -> None:
    first = applied(None, {"data": {"x": "1"}})
    assert applied(first, {"data": {"x": "1"}}) == first


def test_another_managers_field_is_a_conflict_unless_forced_or_equal() -> None:
    first = applied(None, {"data": {"x": "1"}})
    shared = applied(first, {"data": {"x": "1"}}, "two")
    assert applied(shared, {"data": {}}, "one")["data"] == {"x": "1"}

    with pytest.raises(ApiError, match=r'conflict with "one".*\.data\.x') as refused:
        applied(first, {"data": {"x": "2"}}, "two")
    assert refused.value.code == 409
    forced = applied(first, {"data": {"x": "2"}}, "two", force=True)
    assert forced["data"] == {"x": "2"}
    assert applied(forced, {"data": {"y": "1"}}, "one")["data"] == {"x": "2", "y": "1"}


def test_applied_list_items_are_merged_by_key_and_removed_by_key() -> None:
    def pod(*containers: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": "a"}, "spec": {"containers": list(containers)}}

    resource = BY_PLURAL["pods"]
    first = apply(
        None,
        pod({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
        "one",
        force=False,
        resource=resource,
        part=None,
    )
    first["spec"]["containers"].append({"name": "theirs", "image": "3"})
    second = apply(first, pod({"name": "a", "image": "4"}), "one", force=False, resource=resource, part=None)
    assert second["spec"]["containers"] == [{"name": "a", "image": "4"}, {"name": "theirs", "image": "3"}]
