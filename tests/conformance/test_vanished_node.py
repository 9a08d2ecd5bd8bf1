"""A node whose object is deleted: its pods are collected, and the run begins anew beside it."""

from __future__ import annotations

from tests.conformance.api import Object
from tests.conformance.departed_node import DepartedNode
from tests.conformance.place import conditions, holding, phase


def test_pods_of_a_deleted_node_are_collected_and_the_set_begins_anew(departed_node: DepartedNode) -> None:
    place, node = departed_node.place, departed_node.node
    again = place.wait_for_pods("lm", 4, attempt=1, seconds=place.plane.timing.node_gone + 20)
    assert node not in {item["spec"]["nodeName"] for item in again}
    status = place.get("jobsets", "lm")["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)

    events = departed_node.pods.wait(lambda found: any(is_lost(event, node) for event in found))
    last = next(event["object"] for event in events if is_lost(event, node))
    reason = conditions(last)["DisruptionTarget"]
    assert (reason["status"], reason["reason"]) == ("True", "DeletionByPodGC")
    assert reason["message"] == "PodGC: node no longer exists"
    assert phase(last) == "Failed"
    failed = next(
        conditions(event["object"])["Failed"]
        for event in departed_node.jobs.events
        if "Failed" in holding(event["object"])
    )
    assert (failed["reason"], failed["message"]) == (
        "PodFailurePolicy",
        f"Pod {place.name}/{last['metadata']['name']} has condition DisruptionTarget matching FailJob rule at index 1",
    )
    event = place.wait_for_event("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction", "lm")
    assert event["message"].startswith("applying RestartJobSetAndIgnoreMaxRestarts failure policy action")


def is_lost(event: Object, node: str) -> bool:
    return bool(event["type"] == "DELETED" and event["object"]["spec"].get("nodeName") == node)
