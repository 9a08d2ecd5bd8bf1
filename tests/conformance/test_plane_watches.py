"""Watches: from a version, through selectors, their first state, their bookmarks and their ends."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from tests.conformance.api import Object, Refusal
from tests.conformance.bodies import config_map, jobset
from tests.conformance.place import Place

WATCHED: dict[str, Any] = {"labelSelector": "watched=yes"}


def watched(name: str, **data: str) -> Object:
    return config_map(name, data, labels={"watched": "yes"})


def told(event: Object) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def test_every_change_after_a_version_is_told_in_order(place: Place) -> None:
    before = place.create("configmaps", watched("before"))
    place.create("configmaps", watched("a"))
    place.patch("configmaps", "a", {"data": {"x": "1"}})
    place.delete("configmaps", "a")
    place.create("configmaps", watched("b"))
    path, version = place.path("configmaps"), before["metadata"]["resourceVersion"]
    with place.api.watch(path, version, **WATCHED) as events:
        found = list(itertools.islice(events, 4))
        place.create("configmaps", watched("c"))
        found.append(next(events))
    assert [told(event) for event in found] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    # Also the deletion has a version of its own, from which a watch can go on.
    assert versions == sorted(set(versions)) and versions[0] > int(version)
    with place.api.watch(path, str(versions[2]), **WATCHED) as events:
        assert told(next(events)) == ("ADDED", "b")


def test_objects_leave_and_enter_a_selector(place: Place) -> None:
    version = place.version("configmaps")
    with place.api.watch(place.path("configmaps"), version, **WATCHED) as events:
        place.create("configmaps", config_map("a", {"x": "0"}))
        place.patch("configmaps", "a", {"metadata": {"labels": {"watched": "yes"}}, "data": {"x": "1"}})
        place.patch("configmaps", "a", {"metadata": {"labels": {"watched": "no"}}, "data": {"x": "2"}})
        place.patch("configmaps", "a", {"data": {"x": "3"}})
        place.create("configmaps", watched("end"))
        found = list(itertools.islice(events, 3))
    assert [told(event) for event in found] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "end")]
    # What left is shown as it last was within the selector, with the version of the change that took it out.
    assert found[1]["object"]["data"] == {"x": "1"}
    assert int(found[1]["object"]["metadata"]["resourceVersion"]) > int(
        found[0]["object"]["metadata"]["resourceVersion"]
    )


def test_one_object_is_watched_by_its_name(place: Place) -> None:
    version = place.version("jobsets")
    with place.api.watch(place.path("jobsets"), version, fieldSelector="metadata.name=b") as events:
        for name in "ab":
            body = jobset(name)
            body["spec"]["suspend"] = True
            place.create("jobsets", body)
        assert told(next(events)) == ("ADDED", "b")


def test_a_watch_without_a_version_begins_with_what_is_there(place: Place) -> None:
    for name in "ab":
        place.create("configmaps", watched(name))
    with place.api.watch(place.path("configmaps"), "", **WATCHED) as events:
        first = [told(event) for event in itertools.islice(events, 2)]
        assert sorted(first) == [("ADDED", "a"), ("ADDED", "b")]
        place.delete("configmaps", "a")
        assert told(next(events)) == ("DELETED", "a")


def test_the_first_state_ends_with_a_bookmark_where_asked_for(place: Place) -> None:
    for name in "ab":
        place.create("configmaps", watched(name))
    asked: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with place.api.watch(place.path("configmaps"), "", **WATCHED, **asked) as events:
        first = [told(event) for event in itertools.islice(events, 2)]
        bookmark = next(events)
    assert sorted(first) == [("ADDED", "a"), ("ADDED", "b")]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_ends_when_its_time_is_up_with_a_bookmark_before(place: Place) -> None:
    version = place.version("jobsets")
    asked: dict[str, Any] = {**WATCHED, "allowWatchBookmarks": "true", "timeoutSeconds": 4}
    began = time.monotonic()
    with place.api.watch(place.path("jobsets"), version, 15, **asked) as events:
        # What the watch does not show moves its version on, and that is what bookmarks tell.
        body = jobset("unwatched")
        body["spec"]["suspend"] = True
        created = place.create("jobsets", body)
        found = list(events)
    # A server that doesn't end it is a TimeoutError of the watch above.
    assert time.monotonic() - began > 3
    assert found and {event["type"] for event in found} == {"BOOKMARK"}
    assert int(found[-1]["object"]["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])
    assert found[-1]["object"]["kind"] == "JobSet"


def test_a_version_that_is_forgotten_is_gone(place: Place) -> None:
    # A real server's cache of JobSets begins with their definition, which is younger than version 1.
    if place.plane.compact is not None:
        place.plane.compact()
    with place.api.watch(place.path("jobsets"), "1") as events:
        event = next(events)
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1")


def test_a_watch_that_goes_on_survives_compaction(place: Place) -> None:
    if place.plane.compact is None:
        pytest.skip("nobody but the cluster's owner can make it forget old versions")
    with place.api.watch(place.path("configmaps"), place.version("configmaps"), **WATCHED) as events:
        place.create("configmaps", watched("a"))
        assert told(next(events)) == ("ADDED", "a")
        place.plane.compact()
        place.create("configmaps", watched("b"))
        assert told(next(events)) == ("ADDED", "b")


def test_a_version_from_the_future_is_too_large(place: Place) -> None:
    """As a client meets it whose cluster was restored from a backup."""
    future = str(int(place.version("configmaps")) + 1_000_000)
    with pytest.raises(Refusal) as refused:
        place.api.get(place.path("configmaps"), resourceVersion=future)
    assert (refused.value.code, refused.value.reason) == (504, "Timeout")
    assert "Too large resource version" in json.dumps(refused.value.body)


def test_a_version_that_is_none_is_refused(place: Place) -> None:
    with pytest.raises(Refusal) as refused, place.api.watch(place.path("configmaps"), "yesterday") as events:
        next(events)
    assert refused.value.code in (400, 422, 500)
    assert "yesterday" in refused.value.message
