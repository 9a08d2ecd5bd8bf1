"""Failed pods: which rule of the failure policy decides, what is said about it, and how the next attempt begins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.conformance.api import Object
from tests.conformance.bodies import jobset
from tests.conformance.place import Place, attempt_of, conditions, essence, holding, is_going


def start(place: Place, **wishes: object) -> Sequence[Object]:
    """A JobSet `lm` of 2 slices x 2 hosts that runs; its pods."""
    place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here, **wishes))  # type: ignore[arg-type]
    return place.wait_for_pods("lm", 4)


def counters(found: Object) -> tuple[int, int]:
    return found["status"]["restarts"], found["status"].get("restartsCountTowardsMax", 0)


def test_an_error_of_the_user_fails_the_set_at_once(place: Place) -> None:
    pods = start(place)
    place.kubelet.finish(pods[1], 64)
    ended = place.wait_for_end("lm")
    assert essence(conditions(ended)["Failed"]) == (
        "True",
        "FailJobSetFailurePolicyAction",
        "applying FailJobSet failure policy action (first failed job: lm-slice-0)",
    )
    assert (ended["status"]["terminalState"], counters(ended)) == ("Failed", (0, 0))
    failed = conditions(place.get("jobs", "lm-slice-0"))["Failed"]
    assert (failed["reason"], failed["message"]) == (
        "PodFailurePolicy",
        f"Container trainer for pod {place.name}/{pods[1]['metadata']['name']} failed with exit code 64 "
        "matching FailJob rule at index 0",
    )
    # The failed pod stays to be looked at, the other slice is taken away.
    assert place.get("pods", pods[1]["metadata"]["name"])["status"]["phase"] == "Failed"
    place.wait_gone("jobs", "lm-slice-1")


def test_a_lost_peer_restarts_the_set_free_of_charge(place: Place) -> None:
    pods = start(place, max_restarts=0)
    place.kubelet.finish(pods[3], 75)
    again = place.wait_for_pods("lm", 4, attempt=1)
    assert not {pod["metadata"]["uid"] for pod in pods} & {pod["metadata"]["uid"] for pod in again}
    found = place.get("jobsets", "lm")
    assert counters(found) == (1, 0)
    assert not holding(found) & {"Failed", "Completed"}
    assert all(attempt_of(job) == 1 for job in place.list("jobs"))
    event = place.wait_for_event("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction", "lm")
    assert event["type"] == "Warning"
    assert event["message"] == (
        "applying RestartJobSetAndIgnoreMaxRestarts failure policy action (first failed job: lm-slice-1)"
    )
    assert event["involvedObject"]["kind"] == "JobSet"


def test_other_failures_are_counted_until_there_were_too_many(place: Place) -> None:
    pods = start(place, max_restarts=1)
    place.kubelet.finish(pods[0], 17)
    pods = place.wait_for_pods("lm", 4, attempt=1)
    assert counters(place.get("jobsets", "lm")) == (1, 1)
    event = place.wait_for_event("RestartJobSetFailurePolicyAction", "lm")
    assert event["message"] == "applying RestartJobSet failure policy action (first failed job: lm-slice-0)"
    place.kubelet.finish(pods[2], 17)
    ended = place.wait_for_end("lm")
    assert essence(conditions(ended)["Failed"]) == (
        "True",
        "ReachedMaxRestarts",
        "jobset failed due to reaching max number of restarts (first failed job: lm-slice-1)",
    )
    assert counters(ended) == (1, 1)
    failed = conditions(place.get("jobs", "lm-slice-1"))["Failed"]
    assert (failed["reason"], failed["message"]) == (
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    )
    assert place.wait_for_event("ReachedMaxRestarts", "lm")["message"] == conditions(ended)["Failed"]["message"]


def test_without_a_failure_policy_the_first_failure_is_the_last(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("lm", hosts=1, node_selector=place.only_here)
    del body["spec"]["failurePolicy"]
    place.create("jobsets", body)
    place.kubelet.finish(place.wait_for_pods("lm", 2)[0], 17)
    ended = place.wait_for_end("lm")
    assert essence(conditions(ended)["Failed"]) == (
        "True",
        "FailedJobs",
        "jobset failed due to one or more job failures (first failed job: lm-slice-0)",
    )


def test_a_failed_job_says_so_in_two_steps(place: Place) -> None:
    """FailureTarget comes at once, Failed only when the last of its pods has gone."""
    pods = start(place)
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    with place.kubelet.holding_ends(*nodes):
        place.kubelet.finish(pods[0], 64)
        found = place.wait_for("jobs", "lm-slice-0", lambda job: "FailureTarget" in holding(job))
        assert conditions(found)["FailureTarget"]["reason"] == "PodFailurePolicy"
        place.wait_for("pods", pods[1]["metadata"]["name"], is_going)
        assert "Failed" not in holding(place.get("jobs", "lm-slice-0"))
        assert not holding(place.get("jobsets", "lm")) & {"Failed"}
    place.wait_for_end("lm")


@pytest.mark.parametrize("strategy", ["BlockingRecreate", "Recreate"])
def test_when_pods_of_the_next_attempt_are_made(place: Place, strategy: str) -> None:
    """BlockingRecreate waits for the last old pod of the set; Recreate only for each Job's own."""
    for pool in ("a", "b"):
        place.add_nodes(1, pool=pool)
    body = jobset("lm", hosts=1, strategy=strategy, exclusive=True, node_selector=place.only_here)
    place.create("jobsets", body)
    pods = place.wait_for_pods("lm", 2)
    with place.kubelet.holding_ends(pods[1]["spec"]["nodeName"]):
        place.kubelet.finish(pods[0], 75)
        place.wait_for("pods", pods[1]["metadata"]["name"], is_going)
        place.wait_for("jobsets", "lm", lambda found: found["status"]["restarts"] == 1)
        if strategy == "Recreate":
            place.wait("pods", lambda found: any(attempt_of(pod) == 1 for pod in found.values()))
        else:
            # The failed slice is gone altogether, and still nothing new is there.
            place.wait_gone("jobs", "lm-slice-0")
            assert all(attempt_of(pod) == 0 for pod in place.list("pods"))
    place.wait_for_pods("lm", 2, attempt=1)


def test_no_pod_of_an_attempt_is_made_before_the_last_one_of_the_previous_has_gone(place: Place) -> None:
    with place.record("pods") as recording:
        pods = start(place)
        place.kubelet.finish(pods[0], 75)
        place.wait_for_pods("lm", 4, attempt=1)
        events = recording.wait(lambda found: sum(event["type"] == "ADDED" for event in found) == 8)
    gone = [number for number, event in enumerate(events) if event["type"] == "DELETED"]
    added = [number for number, event in enumerate(events) if event["type"] == "ADDED"]
    assert len(gone) == 4
    assert max(gone) < added[4]


def test_a_deleted_pod_is_replaced_only_when_it_has_ended(place: Place) -> None:
    """podReplacementPolicy Failed: and as it counts as failed, the Job fails and the set starts anew."""
    pods = start(place)
    with place.kubelet.holding_ends(pods[0]["spec"]["nodeName"]):
        place.delete("pods", pods[0]["metadata"]["name"])
        job = place.wait_for("jobs", "lm-slice-0", lambda found: (found["status"].get("terminating") or 0) == 1)
        assert job["status"].get("active", 0) == 1
        assert len(place.list("pods")) == 4
    place.wait_for_pods("lm", 4, attempt=1)
    assert counters(place.get("jobsets", "lm")) == (1, 1)
