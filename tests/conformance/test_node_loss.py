"""Lost nodes: gone from the API, or there and silent."""

from __future__ import annotations

from tests.conformance.api import Object
from tests.conformance.bodies import jobset, pod
from tests.conformance.place import Place, attempt_of, conditions, holding, is_going, phase

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def patience(place: Place, seconds: float) -> list[Object]:
    return [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": place.plane.timing.tolerate(seconds),
        }
        for key in (NOT_READY, UNREACHABLE)
    ]


def test_a_silent_node_keeps_its_pods_until_somebody_takes_them_by_force(place: Place) -> None:
    timing = place.plane.timing
    for pool in ("a", "b", "c"):
        place.add_nodes(1, pool=pool)
    body = jobset("lm", hosts=1, exclusive=True, node_selector=place.only_here, tolerations=patience(place, 1))
    place.create("jobsets", body)
    pods = place.wait_for_pods("lm", 2)
    lost = pods[0]
    node = lost["spec"]["nodeName"]
    place.kubelet.silence(node)

    found = place.api.wait(
        "/api/v1/nodes",
        lambda nodes: conditions(nodes[node])["Ready"]["status"] == "Unknown" and bool(taints(nodes[node])),
        timing.not_ready + 20,
    )
    ready = conditions(found[node])["Ready"]
    assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    place.api.wait(
        "/api/v1/nodes",
        lambda nodes: taints(nodes[node]) >= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")},
        20,
    )
    stuck = place.wait_for("pods", lost["metadata"]["name"], is_going, timing.not_ready + 30)
    assert phase(stuck) == "Running"
    assert conditions(stuck)["Ready"]["status"] == "False"
    disrupted = conditions(stuck)["DisruptionTarget"]
    assert (disrupted["status"], disrupted["reason"]) == ("True", "DeletionByTaintManager")

    # Nobody confirms its end: its Job doesn't fail, so nothing begins anew.
    job = place.wait_for("jobs", "lm-slice-0", lambda item: item["status"].get("terminating") == 1)
    assert "Failed" not in holding(job)
    assert place.get("jobsets", "lm")["status"]["restarts"] == 0

    # A deletion by force takes it from no Job that still counts on it: the Job's finalizer keeps it until it has ended.
    place.delete("pods", lost["metadata"]["name"], gracePeriodSeconds=0)
    kept = place.get("pods", lost["metadata"]["name"])
    assert kept["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0
    assert place.get("jobsets", "lm")["status"]["restarts"] == 0

    # Whoever knows that the machine is gone says that the pod has failed.
    place.api.patch(place.path("pods", lost["metadata"]["name"], "status"), {"status": {"phase": "Failed"}})
    again = place.wait_for_pods("lm", 2, attempt=1, seconds=30)
    assert node not in {item["spec"]["nodeName"] for item in again}
    assert place.get("jobsets", "lm")["status"]["restarts"] == 1
    place.wait_for_event("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction", "lm")


def taints(node: Object) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}


def test_blocking_recreate_waits_for_a_pod_that_nobody_ends(place: Place) -> None:
    for pool in ("a", "b", "c"):
        place.add_nodes(1, pool=pool)
    body = jobset("lm", hosts=1, exclusive=True, node_selector=place.only_here)
    place.create("jobsets", body)
    pods = place.wait_for_pods("lm", 2)
    node = pods[1]["spec"]["nodeName"]
    place.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    place.api.wait("/api/v1/nodes", lambda nodes: bool(taints(nodes[node])))
    place.kubelet.silence(node)
    place.kubelet.finish(pods[0], 75)
    place.wait_for("pods", pods[1]["metadata"]["name"], is_going)
    place.wait_gone("jobs", "lm-slice-0")
    blocked = place.get("jobsets", "lm")
    assert blocked["status"]["restarts"] == 1
    held = place.get("jobs", "lm-slice-1")
    assert attempt_of(held) == 0 and is_going(held)
    assert all(attempt_of(item) == 0 for item in place.list("pods"))
    # Its Job is being deleted and counts on nothing any more: here force helps.
    place.delete("pods", pods[1]["metadata"]["name"], gracePeriodSeconds=0)
    place.wait_for_pods("lm", 2, attempt=1)


def test_a_node_that_is_heard_again_is_ready_again(place: Place) -> None:
    node, _ = place.add_nodes(2)
    place.create("pods", pod("a", nodeName=node, tolerations=patience(place, 600)))
    place.wait_for("pods", "a", lambda found: phase(found) == "Running")
    place.kubelet.silence(node)
    place.wait_for(
        "pods", "a", lambda found: conditions(found)["Ready"]["status"] == "False", place.plane.timing.not_ready + 20
    )
    place.kubelet.speak(node)
    place.api.wait("/api/v1/nodes", lambda nodes: "Ready" in holding(nodes[node]) and not taints(nodes[node]), 20)
    assert phase(place.get("pods", "a")) == "Running"


def test_silent_nodes_are_given_up_one_by_one(place: Place) -> None:
    """So the pods of a slice that falls silent as a whole go ten seconds apart, a node at a time."""
    nodes = place.add_nodes(5)
    for node in nodes[:2]:
        place.kubelet.silence(node)

    def are_told(found: dict[str, Object]) -> bool:
        both = [found[node] for node in nodes[:2]]
        return all(conditions(node)["Ready"]["status"] == "Unknown" for node in both) and any(
            (UNREACHABLE, "NoExecute") in taints(node) for node in both
        )

    found = place.api.wait("/api/v1/nodes", are_told, place.plane.timing.not_ready + 20)
    given_up = [node for node in nodes if (UNREACHABLE, "NoExecute") in taints(found[node])]
    assert len(given_up) == 1
