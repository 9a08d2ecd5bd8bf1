"""The store: versions, conflicts, deletion, persistence, history."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.store import Store

MakePod = Callable[..., dict[str, Any]]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def test_create_sets_identity_and_versions_grow_by_one(store: Store) -> None:
    first = store.create("configmaps", "default", config_map("a", x="1"))
    second = store.create("configmaps", "default", config_map("b"))

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    assert first["apiVersion"] == "v1" and first["kind"] == "ConfigMap"
    assert first["metadata"]["creationTimestamp"].endswith("Z")


def test_a_name_is_taken_once_and_free_again_after_deletion_with_a_new_uid(store: Store) -> None:
    first = store.create("configmaps", "default", config_map("a"))
    with pytest.raises(ApiError, match='configmaps "a" already exists') as refused:
        store.create("configmaps", "default", config_map("a"))
    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")

    assert store.delete("configmaps", "default", "a") is None
    again = store.create("configmaps", "default", config_map("a"))
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


def test_generated_names_differ(store: Store) -> None:
    names = {
        store.create("configmaps", "default", {"metadata": {"generateName": "x-"}})["metadata"]["name"]
        for _ in range(20)
    }
    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


def test_an_update_from_a_stale_version_is_a_conflict(store: Store) -> None:
    stale = store.create("configmaps", "default", config_map("a", x="1"))
    fresh = store.update("configmaps", "default", {**stale, "data": {"x": "2"}})

    with pytest.raises(ApiError, match="the object has been modified") as refused:
        store.update("configmaps", "default", {**stale, "data": {"x": "3"}})
    assert refused.value.code == 409
    assert store.get("configmaps", "default", "a") == fresh


def test_an_update_without_a_version_is_unconditional_but_an_other_uid_is_a_conflict(store: Store) -> None:
    store.create("configmaps", "default", config_map("a", x="1"))
    assert store.update("configmaps", "default", config_map("a", x="2"))["data"] == {"x": "2"}

    other = config_map("a")
    other["metadata"]["uid"] = "0000"
    with pytest.raises(ApiError, match="UID in precondition: 0000"):
        store.update("configmaps", "default", other)


def test_an_update_that_changes_nothing_is_no_write(store: Store) -> None:
    created = store.create("configmaps", "default", config_map("a", x="1"))
    before = store.version
    store.update("configmaps", "default", created)
    store.patch("configmaps", "default", "a", {"data": {"x": "1"}})
    assert store.version == before


def test_callers_cannot_change_the_store_through_what_they_got(store: Store) -> None:
    created = store.create("configmaps", "default", config_map("a", x="1"))
    created["data"]["x"] = "changed"
    got = store.get("configmaps", "default", "a")
    assert got is not None
    got["data"]["x"] = "changed too"
    unchanged = store.get("configmaps", "default", "a")
    assert unchanged is not None and unchanged["data"] == {"x": "1"}


def test_status_and_spec_are_written_apart(store: Store, make_jobset: MakePod) -> None:
    created = store.create("jobsets", "default", {**make_jobset("a"), "status": {"restarts": 7}})
    assert "status" not in created

    created["spec"]["suspend"] = True
    created["status"] = {"restarts": 1}
    by_status = store.update("jobsets", "default", created, subresource="status")
    assert by_status["status"] == {"restarts": 1} and "suspend" not in by_status["spec"]
    assert by_status["metadata"]["generation"] == 1

    by_status["spec"]["suspend"] = True
    by_status["status"] = {"restarts": 2}
    by_spec = store.update("jobsets", "default", by_status)
    assert by_spec["status"] == {"restarts": 1} and by_spec["spec"]["suspend"] is True
    assert by_spec["metadata"]["generation"] == 2


def test_a_scheduled_pod_gets_its_grace_period_and_goes_by_the_second_delete(store: Store, make_pod: MakePod) -> None:
    store.create("pods", "default", make_pod("a", terminationGracePeriodSeconds=7))
    store.bind("default", "a", "node-1")

    marked = store.delete("pods", "default", "a")
    assert marked is not None and marked["metadata"]["deletionGracePeriodSeconds"] == 7

    longer = store.delete("pods", "default", "a", grace_period_seconds=60)
    assert longer is not None and longer["metadata"]["deletionGracePeriodSeconds"] == 7
    shorter = store.delete("pods", "default", "a", grace_period_seconds=2)
    assert shorter is not None and shorter["metadata"]["deletionGracePeriodSeconds"] == 2

    assert store.delete("pods", "default", "a", grace_period_seconds=0) is None
    assert store.get("pods", "default", "a") is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_or_never_was_scheduled_goes_at_once(store: Store, make_pod: MakePod, phase: str) -> None:
    store.create("pods", "default", make_pod("pending"))
    assert store.delete("pods", "default", "pending") is None

    store.create("pods", "default", make_pod("ended"))
    store.bind("default", "ended", "node-1")
    store.patch("pods", "default", "ended", {"status": {"phase": phase}}, subresource="status")
    assert store.delete("pods", "default", "ended") is None


def test_finalizers_hold_an_object_until_the_last_is_removed_and_none_can_be_added(store: Store) -> None:
    store.create("configmaps", "default", {"metadata": {"name": "a", "finalizers": ["example.com/x"]}})
    marked = store.delete("configmaps", "default", "a")
    assert marked is not None and marked["metadata"]["deletionTimestamp"]

    marked["metadata"]["finalizers"] = ["example.com/x", "example.com/late"]
    with pytest.raises(ApiError, match="no new finalizers can be added if the object is being deleted"):
        store.update("configmaps", "default", marked)

    marked["metadata"]["finalizers"] = []
    store.update("configmaps", "default", marked)
    assert store.get("configmaps", "default", "a") is None


def test_delete_preconditions(store: Store) -> None:
    created = store.create("configmaps", "default", config_map("a"))
    with pytest.raises(ApiError, match="the UID in the precondition"):
        store.delete("configmaps", "default", "a", uid="other")
    with pytest.raises(ApiError, match="the ResourceVersion in the precondition"):
        store.delete("configmaps", "default", "a", resource_version="1")
    assert store.delete("configmaps", "default", "a", uid=created["metadata"]["uid"]) is None


def test_a_pod_is_bound_once(store: Store, make_pod: MakePod) -> None:
    store.create("pods", "default", make_pod("a"))
    bound = store.bind("default", "a", "node-1")
    assert bound["spec"]["nodeName"] == "node-1"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(ApiError, match='already assigned to node "node-1"'):
        store.bind("default", "a", "node-2")


def test_dry_run_writes_nothing(store: Store) -> None:
    before = store.version
    shown = store.create("configmaps", "default", config_map("a"), dry_run=True)
    assert shown["metadata"]["uid"]
    assert store.get("configmaps", "default", "a") is None
    assert store.version == before


def test_reopening_keeps_objects_and_versions_and_only_one_process_may_have_it_open(tmp_path: Path) -> None:
    opened = Store(tmp_path)
    opened.create("namespaces", None, {"metadata": {"name": "one"}})
    gone = opened.create("configmaps", "one", config_map("gone"))
    kept = opened.create("configmaps", "one", config_map("kept", x="1"))
    opened.delete("configmaps", "one", gone["metadata"]["name"])
    version = opened.version

    script = (
        "import sys, pathlib; from everstep_sandbox.kubernetes.store import Store; Store(pathlib.Path(sys.argv[1]))"
    )
    second = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "in use by another process" in second.stderr

    opened.close()
    again = Store(tmp_path)
    assert again.version == version
    assert again.get("configmaps", "one", "kept") == kept
    assert again.get("configmaps", "one", "gone") is None
    created = again.create("configmaps", "one", config_map("new"))
    assert int(created["metadata"]["resourceVersion"]) == version + 1
    again.close()


def test_every_committed_write_is_one_line_of_the_log(store: Store, tmp_path: Path) -> None:
    start = len((tmp_path / "writes.jsonl").read_text().splitlines())
    created = store.create("configmaps", "default", config_map("a"), user_agent="me/1")
    store.patch("configmaps", "default", "a", {"data": {"x": "1"}}, user_agent="me/1")
    store.update("configmaps", "default", config_map("a", x="2"), user_agent="me/1")
    store.create("configmaps", "default", config_map("dry"), dry_run=True)
    store.delete("configmaps", "default", "a", user_agent="me/1")

    lines = [json.loads(line) for line in (tmp_path / "writes.jsonl").read_text().splitlines()[start:]]
    assert [line["verb"] for line in lines] == ["create", "patch", "update", "delete"]
    assert {line["uid"] for line in lines} == {created["metadata"]["uid"]}
    assert [line.get("removed", False) for line in lines] == [False, False, False, True]
    assert lines[0].keys() >= {"time", "resource", "namespace", "name", "resourceVersion", "userAgent"}
    versions = [int(line["resourceVersion"]) for line in lines]
    assert versions == list(range(versions[0], versions[0] + 4))


async def test_a_subscription_sees_every_change_of_its_resources_in_order(store: Store) -> None:
    before = store.version
    subscription = store.subscribe(["configmaps"], namespace="default")
    store.create("configmaps", "default", config_map("a"))
    store.create("configmaps", "kube-system", config_map("elsewhere"))
    store.create("secrets", "default", {"metadata": {"name": "other-kind"}})
    store.update("configmaps", "default", config_map("a", x="1"))
    store.delete("configmaps", "default", "a")

    seen = [await asyncio.wait_for(anext(subscription), 1) for _ in range(3)]
    assert [change.type for change in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert int(seen[2].object["metadata"]["resourceVersion"]) == store.version
    assert subscription.drain() == []

    replayed = store.subscribe(["configmaps"], namespace="default", since=before).drain()
    assert [change.version for change in replayed] == [change.version for change in seen]


async def test_history_is_bounded_and_says_so(tmp_path: Path) -> None:
    opened = Store(tmp_path, history=10)
    opened.create("namespaces", None, {"metadata": {"name": "one"}})
    slow = opened.subscribe(["configmaps"])
    for index in range(15):
        opened.create("configmaps", "one", config_map(f"c{index}"))

    with pytest.raises(ApiError, match="too old resource version: 1 ") as refused:
        opened.subscribe(since=1)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    with pytest.raises(ApiError, match="fell behind"):
        await slow.wait()
    assert len(opened.subscribe(since=opened.version - 5).drain()) == 5

    opened.history.compact(opened.version)
    with pytest.raises(ApiError, match="too old resource version"):
        opened.subscribe(since=opened.version - 5)
    opened.close()
