"""Lists: label and field selectors, pages, and what becomes of a page that waited too long."""

from __future__ import annotations

import pytest
from tests.conformance.api import Object, Refusal
from tests.conformance.bodies import config_map, jobset, pod
from tests.conformance.place import Place

LABELLED: dict[str, dict[str, str]] = {
    "a": {"tier": "low", "run": "lm"},
    "b": {"tier": "high", "run": "lm"},
    "c": {"tier": "high"},
    "d": {},
}


def names(items: list[Object]) -> str:
    return "".join(sorted(item["metadata"]["name"] for item in items))


@pytest.fixture(scope="module")
def labelled(plane, api, kubelet):  # type: ignore[no-untyped-def]
    """Four labelled objects that no test changes."""
    made = Place(plane, api, kubelet)
    for name, labels in LABELLED.items():
        made.create("configmaps", config_map(name, labels={**labels, "labelled": "yes"}))
    yield made
    made.clear()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("tier=low", "a"),
        ("tier==high,run=lm", "b"),
        ("tier!=low", "bcd"),
        ("tier in (low, high)", "abc"),
        ("tier notin (low)", "bcd"),
        ("run", "ab"),
        ("!run", "cd"),
        ("tier=high,!run", "c"),
    ],
)
def test_label_selectors(labelled: Place, selector: str, found: str) -> None:
    assert names(labelled.list("configmaps", labelSelector=f"labelled,{selector}")) == found


def test_a_label_selector_that_makes_no_sense_is_a_bad_request(labelled: Place) -> None:
    with pytest.raises(Refusal) as refused:
        labelled.list("configmaps", labelSelector="a in b")
    assert refused.value.code == 400
    assert "unable to parse requirement" in refused.value.message


def test_field_selectors_of_pods(place: Place) -> None:
    node = place.add_nodes(1)[0]
    for name in ("placed", "ended"):
        place.create("pods", pod(name, nodeSelector=place.only_here))
    place.create("pods", pod("pending", nodeSelector={"nowhere": "to-be-found"}))
    place.wait("pods", lambda found: sum(item["status"]["phase"] == "Running" for item in found.values()) == 2)
    place.kubelet.finish(place.get("pods", "ended"), 1)
    for selector, expected in (
        ("status.phase=Failed", "ended"),
        ("status.phase=Pending", "pending"),
        ("status.phase!=Failed,status.phase!=Pending", "placed"),
        (f"spec.nodeName={node},status.phase=Running", "placed"),
        ("spec.nodeName=", "pending"),
        ("metadata.name=placed", "placed"),
        (f"metadata.namespace={place.name},metadata.name!=placed,metadata.name!=ended", "pending"),
    ):
        assert names(place.list("pods", fieldSelector=selector)) == expected, selector


def test_field_selectors_of_events(place: Place) -> None:
    place.create("pods", pod("pending", nodeSelector={"nowhere": "to-be-found"}))
    event = place.wait_for_event("FailedScheduling", "pending")
    uid = event["involvedObject"]["uid"]
    for selector in (
        "reason=FailedScheduling,type=Warning",
        "involvedObject.kind=Pod,involvedObject.name=pending",
        f"involvedObject.uid={uid}",
    ):
        assert len(place.list("events", fieldSelector=selector)) == 1, selector
    assert place.list("events", fieldSelector="reason=FailedScheduling,type=Normal") == []


@pytest.mark.parametrize("plural", ["jobsets", "pods", "nodes"])
def test_every_kind_can_be_chosen_by_its_name_and_by_no_field_of_its_own(labelled: Place, plural: str) -> None:
    path = "/api/v1/nodes" if plural == "nodes" else labelled.path(plural)
    assert labelled.api.items(path, fieldSelector="metadata.name=nope") == []
    with pytest.raises(Refusal) as refused:
        labelled.api.items(path, fieldSelector="spec.suspend=true")
    assert refused.value.code == 400
    assert "field label not supported: spec.suspend" in refused.value.message


def test_pages_of_a_list_show_one_moment(place: Place) -> None:
    for index in range(5):
        place.create("jobsets", jobset(f"j{index}", node_selector={"nowhere": "to-be-found"}))
    path = place.path("jobsets")
    first = place.api.get(path, limit=2)
    assert len(first["items"]) == 2 and first["metadata"]["remainingItemCount"] == 3
    place.delete("jobsets", "j3", propagationPolicy="Background")
    place.wait_gone("jobsets", "j3")
    found, page = names(first["items"]), first
    while token := page["metadata"].get("continue"):
        page = place.api.get(path, **{"limit": 2, "continue": token})
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        found += names(page["items"])
    assert found == "j0j1j2j3j4"
    assert "remainingItemCount" not in page["metadata"]


def test_a_page_asked_for_after_compaction_is_gone(place: Place) -> None:
    if place.plane.compact is None:
        pytest.skip("nobody but the cluster's owner can make it forget old versions")
    for index in range(3):
        body = jobset(f"j{index}")
        body["spec"]["suspend"] = True
        place.create("jobsets", body)
    path = place.path("jobsets")
    token = place.api.get(path, limit=1)["metadata"]["continue"]
    place.create("configmaps", config_map("later"))
    place.plane.compact()
    with pytest.raises(Refusal) as refused:
        place.api.get(path, **{"limit": 1, "continue": place.plane.aged(token)})
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert refused.value.message.startswith("The provided continue parameter is too old")
