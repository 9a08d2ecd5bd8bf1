"""Deletion: finalizers, the three propagation policies, preconditions, grace periods."""

from __future__ import annotations

import pytest
from tests.conformance.api import Object, Refusal, path_of
from tests.conformance.bodies import config_map, job, pod
from tests.conformance.place import Place, is_going

FINALIZER = "conformance.everstep.dev/held"


def owned_by(owner: Object, *, blocks: bool = True) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
    ]


def test_a_finalizer_holds_an_object_until_it_is_removed(place: Place) -> None:
    place.create("configmaps", config_map("a", finalizers=[FINALIZER]))
    marked = place.delete("configmaps", "a")
    assert marked["metadata"]["deletionTimestamp"] and marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = place.delete("configmaps", "a")
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    with pytest.raises(Refusal) as refused:
        place.patch("configmaps", "a", {"metadata": {"finalizers": [FINALIZER, "conformance.everstep.dev/late"]}})
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in refused.value.message
    place.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    assert place.find("configmaps", "a") is None


def test_an_other_object_of_the_name_is_not_deleted(place: Place) -> None:
    created = place.create("configmaps", config_map("a"))
    for preconditions, text in (
        ({"uid": "00000000-0000-0000-0000-000000000000"}, "the UID in the precondition (00000000-"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ):
        with pytest.raises(Refusal) as refused:
            place.delete("configmaps", "a", preconditions=preconditions)
        assert (refused.value.code, refused.value.reason) == (409, "Conflict")
        assert refused.value.message.startswith('Operation cannot be fulfilled on ConfigMap "a": ')
        assert text in refused.value.message
    answer = place.delete("configmaps", "a", preconditions={"uid": created["metadata"]["uid"]})
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}


def test_in_the_foreground_the_owner_goes_last(place: Place) -> None:
    owner = place.create("configmaps", config_map("owner"))
    place.create("configmaps", config_map("held", ownerReferences=owned_by(owner), finalizers=[FINALIZER]))
    place.create("configmaps", config_map("free", ownerReferences=owned_by(owner)))
    marked = place.delete("configmaps", "owner", propagationPolicy="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    place.wait("configmaps", lambda found: "free" not in found and is_going(found["held"]))
    assert is_going(place.get("configmaps", "owner"))
    place.patch("configmaps", "held", {"metadata": {"finalizers": None}})
    place.wait_gone("configmaps", "owner")


def test_in_the_background_the_owner_goes_at_once(place: Place) -> None:
    owner = place.create("configmaps", config_map("owner"))
    place.create("configmaps", config_map("held", ownerReferences=owned_by(owner), finalizers=[FINALIZER]))
    place.delete("configmaps", "owner", propagationPolicy="Background")
    assert place.find("configmaps", "owner") is None
    place.wait_for("configmaps", "held", is_going)


def test_orphans_stay_without_their_owner(place: Place) -> None:
    owner = place.create("configmaps", config_map("owner"))
    place.create("configmaps", config_map("orphan", ownerReferences=owned_by(owner)))
    place.delete("configmaps", "owner", propagationPolicy="Orphan")
    place.wait_gone("configmaps", "owner")
    place.wait_for("configmaps", "orphan", lambda found: not found["metadata"].get("ownerReferences"))
    assert not is_going(place.get("configmaps", "orphan"))


def test_an_object_whose_owner_never_was_is_collected(place: Place) -> None:
    owner = place.create("configmaps", config_map("owner"))
    place.delete("configmaps", "owner")
    place.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
    place.wait_gone("configmaps", "child", seconds=30)


def test_a_job_deleted_without_a_policy_leaves_its_pods(place: Place) -> None:
    place.add_nodes(1)
    body = job("a")
    body["spec"]["template"]["spec"]["nodeSelector"] = place.only_here
    place.create("jobs", body)
    place.wait("pods", lambda found: len(found) == 1)
    place.delete("jobs", "a")
    place.wait_gone("jobs", "a")
    left = place.wait("pods", lambda found: all(not item["metadata"].get("ownerReferences") for item in found.values()))
    assert len(left) == 1 and not any(map(is_going, left.values()))


def test_a_pod_gets_its_grace_period_and_no_longer_one(place: Place) -> None:
    node = place.add_nodes(1)[0]
    place.create("pods", pod("a", nodeSelector=place.only_here, terminationGracePeriodSeconds=7))
    place.wait_for("pods", "a", lambda found: found["status"]["phase"] == "Running")
    with place.kubelet.holding_ends(node):
        assert place.delete("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == 7
        assert place.delete("pods", "a", gracePeriodSeconds=60)["metadata"]["deletionGracePeriodSeconds"] == 7
        assert place.delete("pods", "a", gracePeriodSeconds=2)["metadata"]["deletionGracePeriodSeconds"] == 2
        assert place.get("pods", "a")["status"]["phase"] == "Running"
    place.wait_gone("pods", "a")


def test_a_pod_without_a_node_and_an_ended_one_go_at_once(place: Place) -> None:
    place.add_nodes(1)
    place.create("pods", pod("pending", nodeSelector={"nowhere": "to-be-found"}))
    place.delete("pods", "pending")
    assert place.find("pods", "pending") is None
    place.create("pods", pod("ended", nodeSelector=place.only_here))
    place.kubelet.finish(place.wait_for("pods", "ended", lambda found: found["status"]["phase"] == "Running"))
    place.delete("pods", "ended")
    assert place.find("pods", "ended") is None


def test_a_pod_is_deleted_by_force(place: Place) -> None:
    node = place.add_nodes(1)[0]
    place.create("pods", pod("a", nodeSelector=place.only_here))
    place.wait_for("pods", "a", lambda found: found["status"]["phase"] == "Running")
    place.kubelet.silence(node)
    place.delete("pods", "a", gracePeriodSeconds=0)
    assert place.find("pods", "a") is None


def test_a_collection_is_deleted_by_selector(place: Place) -> None:
    for name, tier in (("a", "low"), ("b", "low"), ("c", "high")):
        place.create("configmaps", config_map(name, labels={"tier": tier}))
    place.api.request("DELETE", place.path("configmaps"), labelSelector="tier=low")
    assert [item["metadata"]["name"] for item in place.list("configmaps", labelSelector="tier")] == ["c"]


def test_a_namespace_takes_its_contents_along(place: Place) -> None:
    place.create("configmaps", config_map("a", finalizers=[FINALIZER]))
    place.create("configmaps", config_map("b"))
    place.api.delete(path_of("namespaces", None, place.name))
    place.wait("configmaps", lambda found: set(found) <= {"a", "kube-root-ca.crt"} and is_going(found["a"]))
    place.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    place.api.wait(path_of("namespaces"), lambda found: place.name not in found, 30)
    assert place.list("configmaps") == []
