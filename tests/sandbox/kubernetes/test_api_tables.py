"""What kubectl prints: durations and the word for a pod's state."""

from __future__ import annotations

from typing import Any

import pytest

from everstep_sandbox.kubernetes.http.cells import human_duration, pod_status
from everstep_sandbox.kubernetes.http.tables import table
from everstep_sandbox.kubernetes.resources import BY_PLURAL


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (659, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11100, "3h5m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (700000, "8d"),
        (63072000, "2y"),
        (64000000, "2y10d"),
        (-1, "0s"),
        (-5, "<invalid>"),
    ],
)
def test_durations_read_as_kubectl_prints_them(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def pod(phase: str, *states: dict[str, Any], deleted: bool = False, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {"name": "a"},
        "spec": {"containers": [{"name": f"c{index}"} for index in range(len(states) or 1)]},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": f"c{index}", "state": state, "ready": "running" in state} for index, state in enumerate(states)
            ],
            **status,
        },
    }


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (pod("Pending"), "Pending"),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), "ContainerCreating"),
        (pod("Running", {"running": {}}), "Running"),
        (pod("Running", {"running": {}}, deleted=True), "Terminating"),
        (pod("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}}), "Completed"),
        (pod("Failed", {"terminated": {"exitCode": 75, "reason": "Error"}}), "Error"),
        (pod("Failed", {"terminated": {"exitCode": 75}}), "ExitCode:75"),
        (pod("Failed", reason="Evicted"), "Evicted"),
    ],
)
def test_the_word_for_a_pods_state(given: dict[str, Any], shown: str) -> None:
    assert pod_status(given) == shown


def test_init_containers_hold_a_pod_back_but_started_sidecars_do_not() -> None:
    waiting = pod("Pending", initContainerStatuses=[{"name": "side", "state": {"running": {}}, "started": False}])
    waiting["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]
    assert pod_status(waiting) == "Init:0/1"
    waiting["status"]["initContainerStatuses"][0]["started"] = True
    assert pod_status(waiting) == "Pending"


def test_rows_carry_metadata_unless_asked_otherwise() -> None:
    given = pod("Running", {"running": {}}, {"running": {}})
    shown = table(BY_PLURAL["pods"], [given], {"resourceVersion": "5"})
    names = [column["name"] for column in shown["columnDefinitions"]]
    assert names[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert shown["rows"][0]["cells"][:3] == ["a", "2/2", "Running"]
    assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = table(BY_PLURAL["pods"], [given], {}, include_object="Object")
    assert whole["rows"][0]["object"] == given
