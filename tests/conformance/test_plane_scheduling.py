"""Where pods run: priorities and preemption, exclusive placement, taints, and what is said of pods without a place."""

from __future__ import annotations

import re

from tests.conformance.api import Object
from tests.conformance.bodies import JOBSET_NAME, POOL_LABEL, TPU, TPU_TAINT, jobset, pod
from tests.conformance.place import Place, attempt_of, conditions, holding, index_of, is_going, phase, slice_of

TOLERATES_TPU = {"key": TPU, "operator": "Exists", "effect": "NoSchedule"}


def test_a_higher_priority_takes_the_place_of_a_lower_one(place: Place) -> None:
    low, high = place.priority("low", 1000), place.priority("high", 2000)
    nodes = place.add_nodes(2, resources={TPU: "4"})
    place.create("jobsets", jobset("filler", slices=1, tpu=4, grace=11, priority=low, node_selector=place.only_here))
    place.wait_for_pods("filler", 2)
    with place.kubelet.holding_ends(*nodes):
        high_one = jobset("train", slices=1, hosts=1, tpu=4, priority=high, node_selector=place.only_here)
        place.create("jobsets", high_one)
        victim = _the_going_one(place, "filler")
        assert victim["metadata"]["deletionGracePeriodSeconds"] == 11
        disrupted = conditions(victim)["DisruptionTarget"]
        assert (disrupted["status"], disrupted["reason"]) == ("True", "PreemptionByScheduler")
        assert disrupted["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        # Only once, and only as many as are needed.
        assert sum(map(is_going, place.list("pods"))) == 1
        waiting = place.wait(
            "pods",
            lambda found: all(item["status"].get("nominatedNodeName") for item in found.values()),
            labelSelector=f"{JOBSET_NAME}=train",
        )
        (nominated,) = waiting.values()
        assert nominated["status"]["nominatedNodeName"] == victim["spec"]["nodeName"]
        assert phase(nominated) == "Pending"
        event = place.wait_for_event("Preempted", victim["metadata"]["name"])
        uid = nominated["metadata"]["uid"]
        assert event["message"] == f"Preempted by pod {uid} on node {victim['spec']['nodeName']}"
    place.wait_for_pods("train", 1)
    # The victim's set starts anew, free of charge, and gets only half of its places: there is no gang scheduling.
    found = place.wait(
        "pods",
        lambda pods: (
            sorted((attempt_of(item), phase(item)) for item in pods.values()) == [(1, "Pending"), (1, "Running")]
        ),
        labelSelector=f"{JOBSET_NAME}=filler",
    )
    assert len(found) == 2
    status = place.get("jobsets", "filler")["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)


def _the_going_one(place: Place, name: str) -> Object:
    found = place.wait(
        "pods",
        lambda pods: any(is_going(item) and "DisruptionTarget" in holding(item) for item in pods.values()),
        labelSelector=f"{JOBSET_NAME}={name}",
    )
    return next(item for item in found.values() if is_going(item))


def test_the_jobs_of_a_preempted_pod_say_why(place: Place) -> None:
    low, high = place.priority("low", 1000), place.priority("high", 2000)
    place.add_nodes(1, resources={TPU: "4"})
    with place.record("jobs") as recording:
        filler = jobset("filler", slices=1, hosts=1, tpu=4, priority=low, node_selector=place.only_here)
        place.create("jobsets", filler)
        (victim,) = place.wait_for_pods("filler", 1)
        train = jobset("train", slices=1, hosts=1, tpu=4, priority=high, node_selector=place.only_here)
        place.create("jobsets", train)
        events = recording.wait(lambda found: any("Failed" in holding(event["object"]) for event in found))
    failed = next(event["object"] for event in events if "Failed" in holding(event["object"]))
    told = conditions(failed)["Failed"]
    assert (told["reason"], told["message"]) == (
        "PodFailurePolicy",
        f"Pod {place.name}/{victim['metadata']['name']} has condition DisruptionTarget "
        "matching FailJob rule at index 1",
    )


def test_equals_and_the_peaceful_preempt_nobody(place: Place) -> None:
    place.add_nodes(1, resources={TPU: "4"})
    high = place.priority("high", 2000)
    place.create("pods", pod("first", tpu=4, priorityClassName=high, nodeSelector=place.only_here))
    place.wait_for("pods", "first", lambda found: phase(found) == "Running")
    place.create("pods", pod("second", tpu=4, priorityClassName=high, nodeSelector=place.only_here))
    waiting = place.wait_for("pods", "second", lambda found: "PodScheduled" in conditions(found))
    scheduled = conditions(waiting)["PodScheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert "1 Insufficient google.com/tpu" in scheduled["message"]
    assert ". no new claims to deallocate, preemption: 0/" in scheduled["message"]
    assert "1 No preemption victims found for incoming pod" in scheduled["message"]
    assert not is_going(place.get("pods", "first"))


def test_slices_have_a_pool_each_and_followers_follow_their_leader(place: Place) -> None:
    for pool in ("a", "b"):
        place.add_nodes(2, pool=pool, resources={TPU: "4"})
    place.create("jobsets", jobset("lm", tpu=4, exclusive=True, node_selector=place.only_here))
    pods = place.wait_for_pods("lm", 4)
    pools: dict[int, set[str]] = {}
    for item in pods:
        node = place.api.get(f"/api/v1/nodes/{item['spec']['nodeName']}")
        pools.setdefault(slice_of(item), set()).add(node["metadata"]["labels"][POOL_LABEL])
    assert all(len(found) == 1 for found in pools.values())
    assert pools[0] != pools[1]
    for item in pods:
        (pool,) = pools[slice_of(item)]
        affinity = item["spec"].get("affinity") or {}
        if index_of(item):
            assert item["spec"]["nodeSelector"][POOL_LABEL] == pool
            assert not affinity
            continue
        assert POOL_LABEL not in item["spec"]["nodeSelector"]
        (together,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert together["topologyKey"] == apart["topologyKey"] == POOL_LABEL
        key = item["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"]
        assert {"key": "jobset.sigs.k8s.io/job-key", "operator": "In", "values": [key]} in together["labelSelector"][
            "matchExpressions"
        ]
        # Only those of the same priority are kept away, so that a higher one can take the pool over.
        assert {"key": "jobset.sigs.k8s.io/priority", "operator": "In", "values": ["0"]} in apart["labelSelector"][
            "matchExpressions"
        ]
        assert item["metadata"]["labels"]["jobset.sigs.k8s.io/priority"] == "0"


def test_followers_are_refused_as_long_as_their_leader_has_no_place(place: Place) -> None:
    place.create("jobsets", jobset("lm", slices=1, exclusive=True, tpu=4, node_selector=place.only_here))
    event = place.wait_for_event("FailedCreate", "lm-slice-0")
    assert (event["involvedObject"]["kind"], event["type"]) == ("Job", "Warning")
    assert event["message"] == (
        'Error creating: admission webhook "vpod.kb.io" denied the request: follower pod node selector for topology '
        f"domain not found. missing selector: {POOL_LABEL}"
    )
    assert [index_of(item) for item in place.list("pods")] == [0]
    place.add_nodes(2, resources={TPU: "4"})
    place.wait_for_pods("lm", 2, seconds=30)


def test_an_exclusive_set_takes_the_pool_of_a_lower_priority(place: Place) -> None:
    low, high = place.priority("low", 1000), place.priority("high", 2000)
    place.add_nodes(2, resources={TPU: "4"})
    for name, priority in (("filler", low), ("train", high)):
        body = jobset(name, slices=1, tpu=4, exclusive=True, priority=priority, node_selector=place.only_here)
        place.create("jobsets", body)
        place.wait_for_pods(name, 2, seconds=40)
    left = place.wait(
        "pods",
        lambda pods: [(attempt_of(item), phase(item)) for item in pods.values()] == [(1, "Pending")],
        30,
        labelSelector=f"{JOBSET_NAME}=filler",
    )
    assert len(left) == 1


def test_a_taint_keeps_out_who_does_not_tolerate_it(place: Place) -> None:
    place.add_nodes(1, resources={TPU: "4"}, taints=[TPU_TAINT])
    place.create("pods", pod("stranger", nodeSelector=place.only_here))
    place.create("pods", pod("welcome", nodeSelector=place.only_here, tolerations=[TOLERATES_TPU]))
    place.wait_for("pods", "welcome", lambda found: phase(found) == "Running")
    waiting = place.wait_for("pods", "stranger", lambda found: "PodScheduled" in conditions(found))
    assert "1 node(s) had untolerated taint(s)" in conditions(waiting)["PodScheduled"]["message"]


def test_a_pod_without_a_place_says_what_each_node_lacks(place: Place) -> None:
    place.add_nodes(2, resources={TPU: "4"})
    cordoned = place.add_nodes(1, pool="cordoned")[0]
    place.api.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": True}})
    place.api.wait("/api/v1/nodes", lambda found: bool(found[cordoned]["spec"].get("taints")))
    place.create("pods", pod("big", tpu=8, nodeSelector=place.only_here))
    waiting = place.wait_for("pods", "big", lambda found: "PodScheduled" in conditions(found))
    message = conditions(waiting)["PodScheduled"]["message"]
    assert re.match(r"0/\d+ nodes are available: ", message)
    assert "2 Insufficient google.com/tpu" in message
    assert "1 node(s) were unschedulable" in message
    total = len(place.api.items("/api/v1/nodes"))
    assert message.endswith(
        f"preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling."
    )
    event = place.wait_for_event("FailedScheduling", "big")
    assert (event["type"], event["message"]) == ("Warning", message)
    # The scheduler writes events of the newer kind: with one time, and not with the first and the last.
    assert event["eventTime"] and not event.get("lastTimestamp") and not event.get("firstTimestamp")
    assert event["involvedObject"]["kind"] == "Pod"


def test_a_pod_is_placed_when_a_node_comes(place: Place) -> None:
    place.create("pods", pod("early", nodeSelector=place.only_here))
    place.wait_for("pods", "early", lambda found: "PodScheduled" in conditions(found))
    node = place.add_nodes(1)[0]
    found = place.wait_for("pods", "early", lambda item: phase(item) == "Running")
    assert found["spec"]["nodeName"] == node
    event = place.wait_for_event("Scheduled", "early")
    assert event["message"] == f"Successfully assigned {place.name}/early to {node}"


def test_no_execute_evicts_at_once_or_after_the_tolerated_time(place: Place) -> None:
    node = place.add_nodes(1)[0]
    taint = {"key": "conformance.everstep.dev/out", "effect": "NoExecute"}
    tolerated = {"key": taint["key"], "operator": "Exists", "effect": "NoExecute"}
    briefly = {**tolerated, "tolerationSeconds": place.plane.timing.tolerate(1)}
    for name, tolerations in (("never", []), ("briefly", [briefly]), ("always", [tolerated])):
        place.create("pods", pod(name, nodeSelector=place.only_here, tolerations=tolerations))
    place.wait("pods", lambda found: sum(phase(item) == "Running" for item in found.values()) == 3)
    with place.record("pods") as recording:
        place.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
        events = recording.wait(lambda found: sum(event["type"] == "DELETED" for event in found) == 2)
    gone = [event["object"] for event in events if event["type"] == "DELETED"]
    assert [item["metadata"]["name"] for item in gone] == ["never", "briefly"]
    for item in gone:
        reason = conditions(item)["DisruptionTarget"]
        assert (reason["status"], reason["reason"]) == ("True", "DeletionByTaintManager")
        assert reason["message"] == "Taint manager: deleting due to NoExecute taint"
    place.wait_for_event("TaintManagerEviction", "never")
    assert phase(place.get("pods", "always")) == "Running"


def test_a_drained_pod_says_so(place: Place) -> None:
    node = place.add_nodes(1)[0]
    place.create("pods", pod("a", nodeSelector=place.only_here))
    place.wait_for("pods", "a", lambda found: phase(found) == "Running")
    with place.kubelet.holding_ends(node):
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": place.name}}
        place.api.create(place.path("pods", "a", "eviction"), eviction)
        found = place.wait_for("pods", "a", is_going)
        told = conditions(found)["DisruptionTarget"]
        assert (told["status"], told["reason"]) == ("True", "EvictionByEvictionAPI")
        assert told["message"] == "Eviction API: evicting"
    place.wait("pods", lambda pods: not pods)
