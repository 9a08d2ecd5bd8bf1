"""Patches: which kinds there are, what each does, and which a custom resource takes."""

from __future__ import annotations

import pytest
from tests.conformance.api import APPLY, JSON, MERGE, STRATEGIC, Object, Refusal
from tests.conformance.bodies import config_map, jobset, pod
from tests.conformance.place import Place, conditions


def test_a_merge_patch_adds_replaces_and_removes(place: Place) -> None:
    place.create("configmaps", config_map("a", {"x": "1", "y": "1"}))
    assert place.patch("configmaps", "a", {"data": {"x": None, "y": "2", "z": "3"}})["data"] == {"y": "2", "z": "3"}


def test_a_json_patch_tests_before_it_changes(place: Place) -> None:
    place.create("configmaps", config_map("a", {"x": "1"}))
    steps = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]
    assert place.patch("configmaps", "a", steps, JSON)["data"] == {"x": "2"}
    with pytest.raises(Refusal) as refused:
        place.patch("configmaps", "a", steps, JSON)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert place.get("configmaps", "a")["data"] == {"x": "2"}


def test_a_strategic_patch_merges_lists_by_their_keys(place: Place) -> None:
    place.create("pods", pod("a", schedulerName="nobody"))
    for kind in ("everstep.dev/one", "everstep.dev/two"):
        body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        patched = place.api.patch(place.path("pods", "a", "status"), body, STRATEGIC)
    assert set(conditions(patched)) >= {"everstep.dev/one", "everstep.dev/two"}
    replaced = place.api.patch(place.path("pods", "a", "status"), body, MERGE)
    assert set(conditions(replaced)) == {"everstep.dev/two"}


def test_a_custom_resource_takes_no_strategic_patch(place: Place) -> None:
    place.create("jobsets", jobset("a"))
    with pytest.raises(Refusal) as refused:
        place.patch("jobsets", "a", {"spec": {"suspend": True}}, STRATEGIC)
    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in refused.value.message
    suspend = [{"op": "add", "path": "/spec/suspend", "value": True}]
    assert place.patch("jobsets", "a", suspend, JSON)["spec"]["suspend"] is True
    assert place.patch("jobsets", "a", {"spec": {"suspend": False}})["spec"]["suspend"] is False


def test_apply_creates_changes_and_removes_what_it_owned(place: Place) -> None:
    def applied(data: dict[str, str]) -> Object:
        return place.patch("configmaps", "a", config_map("a", data), APPLY, fieldManager="everstep")

    first = applied({"x": "1", "y": "1"})
    assert first["data"] == {"x": "1", "y": "1"}
    again = applied({"x": "1", "y": "1"})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert applied({"x": "2"})["data"] == {"x": "2"}


def test_apply_leaves_alone_what_others_own(place: Place) -> None:
    place.create("configmaps", config_map("a", {"theirs": "1"}), fieldManager="others")
    body = config_map("a", {"ours": "1"})
    patched = place.patch("configmaps", "a", body, APPLY, fieldManager="everstep")
    assert patched["data"] == {"theirs": "1", "ours": "1"}
    conflict = config_map("a", {"theirs": "2", "ours": "1"})
    forced = place.patch("configmaps", "a", conflict, APPLY, fieldManager="everstep", force="true")
    assert forced["data"] == {"theirs": "2", "ours": "1"}


def test_two_appliers_of_one_field_are_in_conflict(place: Place) -> None:
    place.patch("configmaps", "a", config_map("a", {"x": "1"}), APPLY, fieldManager="one")
    with pytest.raises(Refusal) as refused:
        place.patch("configmaps", "a", config_map("a", {"x": "2"}), APPLY, fieldManager="two")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'


def test_apply_works_on_a_jobset(place: Place) -> None:
    body = jobset("a")
    body["spec"]["suspend"] = True
    first = place.patch("jobsets", "a", body, APPLY, fieldManager="everstep")
    assert first["spec"]["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    body["spec"]["suspend"] = False
    assert place.patch("jobsets", "a", body, APPLY, fieldManager="everstep")["spec"]["suspend"] is False


def test_apply_wants_to_know_who_asks(place: Place) -> None:
    with pytest.raises(Refusal) as refused:
        place.patch("configmaps", "a", config_map("a"), APPLY)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert "fieldManager: Required value: is required for apply patch" in refused.value.message


def test_a_content_type_that_is_no_patch_is_refused(place: Place) -> None:
    place.create("configmaps", config_map("a"))
    with pytest.raises(Refusal) as refused:
        place.patch("configmaps", "a", {"data": {"x": "1"}}, "application/json")
    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")
