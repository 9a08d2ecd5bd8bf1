"""Causes, from the shapes that Kubernetes and GKE really give."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.watch import classifier, pods
from everstep.watch.classifier import CauseKind

SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


def pod(name: str = "p", **shape: Any) -> dict[str, Any]:
    """Return a failed pod object: exit_code, container_reason, reason, message, disruption, ended."""
    status: dict[str, Any] = {"phase": shape.get("phase", "Failed")}
    for key in ("reason", "message"):
        if key in shape:
            status[key] = shape[key]
    if "exit_code" in shape:
        terminated = {
            "exitCode": shape["exit_code"],
            "reason": shape.get("container_reason", "Error"),
            "finishedAt": shape.get("ended", "2026-11-29T10:00:00Z"),
        }
        status["containerStatuses"] = [
            {"name": "observer", "state": {"terminated": {"exitCode": 143, "finishedAt": "2026-11-29T09:00:00Z"}}},
            {"name": "trainer", "state": {"terminated": terminated}},
        ]
    if "waiting" in shape:
        status["containerStatuses"] = [{"name": "trainer", "state": {"waiting": {"reason": shape["waiting"]}}}]
    if "disruption" in shape:
        status["conditions"] = [
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": shape["disruption"],
                "message": shape.get("disruption_message", ""),
                "lastTransitionTime": shape.get("ended", "2026-11-29T10:00:00Z"),
            }
        ]
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"jobset.sigs.k8s.io/restart-attempt": str(shape.get("attempt", 0))},
        },
        "spec": {"nodeName": "node"},
        "status": status,
    }


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ({"reason": "Terminated", "message": SHUTDOWN}, CauseKind.PREEMPTED),
        ({"reason": "Terminated", "message": SHUTDOWN, "exit_code": 143}, CauseKind.PREEMPTED),
        ({"disruption": "TerminationByKubelet", "disruption_message": SHUTDOWN}, CauseKind.PREEMPTED),
        ({"disruption": "PreemptionByScheduler", "exit_code": 143}, CauseKind.PREEMPTED),
        ({"disruption": "PreemptionByKubeScheduler"}, CauseKind.PREEMPTED),
        ({"disruption": "DeletionByPodGC"}, CauseKind.INFRASTRUCTURE),
        ({"disruption": "DeletionByGCPControllerManager"}, CauseKind.INFRASTRUCTURE),
        ({"disruption": "DeletionByTaintManager"}, CauseKind.INFRASTRUCTURE),
        ({"disruption": "EvictionByEvictionAPI", "exit_code": 143}, CauseKind.INFRASTRUCTURE),
        ({"disruption": "TerminationByKubelet"}, CauseKind.INFRASTRUCTURE),
        ({"disruption": "SomethingNew"}, CauseKind.INFRASTRUCTURE),
        ({"exit_code": 137, "container_reason": "OOMKilled"}, CauseKind.USER),
        ({"exit_code": 137}, CauseKind.UNKNOWN),
        ({"exit_code": 143}, CauseKind.INFRASTRUCTURE),
        ({"exit_code": 134}, CauseKind.PEER_LOST),
        ({"exit_code": 1}, CauseKind.USER),
        ({"exit_code": 70}, CauseKind.USER),
        ({"exit_code": 64}, CauseKind.CONFIGURATION),
        ({"exit_code": 65}, CauseKind.CONFIGURATION),
        ({"exit_code": 66}, CauseKind.CONFIGURATION),
        ({"exit_code": 75}, CauseKind.PEER_LOST),
        ({"exit_code": 76}, CauseKind.STOPPED),
        ({"exit_code": 70, "disruption": "DeletionByPodGC"}, CauseKind.USER),
        ({"exit_code": 75, "disruption": "DeletionByPodGC"}, CauseKind.INFRASTRUCTURE),
        ({"exit_code": 128, "container_reason": "StartError"}, CauseKind.CONFIGURATION),
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, CauseKind.INFRASTRUCTURE),
        ({"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit"}, CauseKind.USER),
        ({"reason": "UnexpectedAdmissionError"}, CauseKind.INFRASTRUCTURE),
        ({"reason": "OutOfgoogle.com/tpu"}, CauseKind.INFRASTRUCTURE),
        ({"reason": "NodeLost"}, CauseKind.INFRASTRUCTURE),
        ({}, CauseKind.UNKNOWN),
    ],
)
def test_one_pod(shape: dict[str, Any], kind: CauseKind) -> None:
    assert classifier.classify([pods.of_pod(pod(**shape))]).kind is kind


def test_the_first_pod_with_a_cause_of_its_own_is_believed() -> None:
    lost = [pod(f"lost-{n}", exit_code=75, ended=f"2026-11-29T10:00:0{n}Z") for n in range(3)]
    late = pod("gone", disruption="DeletionByPodGC", ended="2026-11-29T10:00:40Z")
    assert classifier.classify(map(pods.of_pod, [*lost, late])).pod == "gone"
    bug = pod("bug", exit_code=70, ended="2026-11-29T10:00:05Z")
    assert classifier.classify(map(pods.of_pod, [*lost, late, bug])).pod == "bug"
    assert classifier.classify(map(pods.of_pod, lost)).kind is CauseKind.PEER_LOST


def test_who_was_only_taken_away_with_the_others_is_not_believed() -> None:
    bug = pod("bug", exit_code=1, ended="2026-11-29T10:00:05Z")
    tied = pod("tied", exit_code=143, ended="2026-11-29T10:00:05Z")
    assert classifier.classify(map(pods.of_pod, [tied, bug])).pod == "bug"
    earlier = pod("earlier", exit_code=143, ended="2026-11-29T10:00:04Z")
    earlier["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:04Z"
    assert classifier.classify(map(pods.of_pod, [earlier, bug])).pod == "bug"
    killed = pod("killed", exit_code=137, ended="2026-11-29T10:00:03Z")
    assert classifier.classify(map(pods.of_pod, [killed, bug])).pod == "killed"


def test_pods_that_run_or_have_done_well_say_nothing() -> None:
    running = pod("r", phase="Running")
    done = pod("d", phase="Succeeded", exit_code=0)
    assert classifier.classify(map(pods.of_pod, [running, done])) is classifier.UNKNOWN


def test_pods_of_another_attempt_are_left_out() -> None:
    states = [pods.of_pod(pod("old", exit_code=70, attempt=1)), pods.of_pod(pod("new", exit_code=75, attempt=2))]
    assert [each.name for each in pods.of_attempt(states, 2)] == ["new"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "Container trainer for pod default/lm-slice-0-1 failed with exit code 64 matching FailJob rule at index 0",
            CauseKind.CONFIGURATION,
        ),
        ("jobset failed: Container trainer for pod a/b failed with exit code 70 matching …", CauseKind.USER),
        ("Pod default/x has condition DisruptionTarget matching FailJob rule at index 1", CauseKind.INFRASTRUCTURE),
    ],
)
def test_what_a_condition_quotes(message: str, kind: CauseKind) -> None:
    cause = classifier.of_message(message)
    assert cause is not None
    assert cause.kind is kind


def test_a_message_that_quotes_nothing_gives_no_cause() -> None:
    assert classifier.of_message("jobset failed due to one or more job failures") is None


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"])
def test_a_container_that_can_never_start(reason: str) -> None:
    cause = classifier.of_stuck(pods.of_pod(pod(phase="Pending", waiting=reason)))
    assert cause is not None
    assert cause.kind is CauseKind.CONFIGURATION
    assert classifier.of_stuck(pods.of_pod(pod(phase="Pending", waiting="ContainerCreating"))) is None


def node(name: str, ready: str = "True", taint: str | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": taint}] if taint else []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("nodes", "summary"),
    [
        ([node("a"), node("b")], None),
        ([node("a")], "node b is gone"),
        ([node("a", "Unknown"), node("b")], "node a stopped answering"),
        (
            [node("a"), node("b", taint="cloud.google.com/impending-node-termination")],
            "node b is about to be terminated",
        ),
        ([node("a", "False")], "node b is gone"),
    ],
)
def test_lost_nodes_explain_lost_peers(nodes: list[dict[str, Any]], summary: str | None) -> None:
    cause = classifier.of_nodes(["a", "b"], nodes)
    assert (cause.summary if cause else None) == summary
