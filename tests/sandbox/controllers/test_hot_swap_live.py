"""Lost machines: hot swap onto a lower-priority set's slice, silent hosts, repaired pools, RAM disks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from everstep_sandbox.nodes import TERMINATION_TAINT

pytestmark = pytest.mark.sandbox

Object = dict[str, Any]
DEFAULT = "/api/v1/namespaces/default"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


def attempt(pod: Object) -> str:
    return str(pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"])


def pods_of(cluster: Any, jobset: str) -> list[Object]:
    found: list[Object] = cluster.items(f"{DEFAULT}/pods?labelSelector=jobset.sigs.k8s.io/jobset-name%3D{jobset}")
    return found


def wait_for_pods(
    cluster: Any, jobset: str, holds: Callable[[list[Object]], bool], seconds: float = 30
) -> list[Object]:
    cluster.wait_any(f"{DEFAULT}/pods", lambda _: holds(pods_of(cluster, jobset)), seconds)
    return pods_of(cluster, jobset)


def running(count: int, of_attempt: str) -> Callable[[list[Object]], bool]:
    def holds(pods: list[Object]) -> bool:
        return len(pods) == count and all(
            attempt(pod) == of_attempt and pod["status"].get("phase") == "Running" for pod in pods
        )

    return holds


def pools(pods: list[Object]) -> dict[str, set[str]]:
    """Slice index -> pools that its pods run in."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        index = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        found.setdefault(index, set()).add(pod["spec"]["nodeName"].rsplit("-", 1)[0])
    return found


def make_priorities(cluster: Any) -> None:
    for name, value in (("low", 1_000_000), ("high", 2_000_000)):
        body = {"metadata": {"name": name}, "value": value}
        cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)


def start_training_beside_filler(cluster: Any, sandbox_jobset: Any, script: str = "sleep 1000 & wait") -> list[Object]:
    make_priorities(cluster)
    train = sandbox_jobset("train", script, slices=2, priority="high", exclusive=True, tpu="4")
    cluster.request("POST", JOBSETS, train)
    pods = wait_for_pods(cluster, "train", running(4, "0"))
    filler = sandbox_jobset("filler", "sleep 1000 & wait", priority="low", exclusive=True, tpu="4")
    cluster.request("POST", JOBSETS, filler)
    wait_for_pods(cluster, "filler", running(2, "0"))
    return pods


def test_exclusive_placement_and_hot_swap(own_cluster: Any, sandbox_jobset: Any) -> None:
    cluster = own_cluster
    before = pools(start_training_beside_filler(cluster, sandbox_jobset))
    assert all(len(found) == 1 for found in before.values()) and before["0"] != before["1"]
    spare = pools(pods_of(cluster, "filler"))["0"]
    lost = next(iter(before["0"])) + "-0"

    began = time.monotonic()
    done = cluster.fault("node-gone", node=lost)
    assert done["gone"] == [lost] and len(done["going"]) == 1
    rest = cluster.request("GET", f"/api/v1/nodes/{done['going'][0]}")
    assert any(taint["key"] == TERMINATION_TAINT for taint in rest["spec"]["taints"])
    after = wait_for_pods(cluster, "train", running(4, "1"))
    took = time.monotonic() - began
    # 4 s until the lost node's pod is collected, 3 s more for the rest of its slice, at ten times real speed.
    assert 3.5 < took < 20
    assert set().union(*pools(after).values()) == spare | before["1"]

    jobset = cluster.request("GET", f"{JOBSETS}/train")
    assert (jobset["status"]["restarts"], jobset["status"].get("restartsCountTowardsMax")) == (1, 0)
    messages = {event["reason"]: event["message"] for event in cluster.items(f"{DEFAULT}/events")}
    assert messages["Preempted"].startswith("Preempted by pod ")
    assert "first failed job: " in messages["RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction"]
    filler = wait_for_pods(cluster, "filler", lambda pods: [attempt(pod) for pod in pods] == ["1"])
    assert not filler[0]["spec"].get("nodeName")
    # Its followers are refused as long as the leader has no place.
    assert any("follower pod node selector" in event["message"] for event in cluster.items(f"{DEFAULT}/events"))


def test_victim_carries_the_reason_of_its_end(own_cluster: Any, sandbox_jobset: Any) -> None:
    cluster = own_cluster
    make_priorities(cluster)
    filler = sandbox_jobset(
        "filler", 'trap "sleep 1; exit 0" TERM; sleep 1000 & wait', slices=3, priority="low", tpu="4", max_restarts=0
    )
    cluster.request("POST", JOBSETS, filler)
    wait_for_pods(cluster, "filler", running(6, "0"))
    cluster.request("POST", JOBSETS, sandbox_jobset("train", "sleep 1000", hosts=1, priority="high", tpu="4"))

    def is_victim(pod: Object | None) -> bool:
        conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
        return any(item["type"] == "DisruptionTarget" for item in conditions)

    victim = cluster.wait_any(f"{DEFAULT}/pods", lambda pod: is_victim(pod) and "deletionTimestamp" in pod["metadata"])
    reason = next(item for item in victim["status"]["conditions"] if item["type"] == "DisruptionTarget")
    assert (reason["status"], reason["reason"]) == ("True", "PreemptionByScheduler")
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 10
    nominated = pods_of(cluster, "train")[0]
    assert nominated["status"]["nominatedNodeName"] == victim["spec"]["nodeName"]
    wait_for_pods(cluster, "train", running(1, "0"))


def test_repaired_pool_comes_back_and_is_used(own_cluster: Any, sandbox_jobset: Any) -> None:
    cluster = own_cluster
    start_training_beside_filler(cluster, sandbox_jobset, 'test "$ATTEMPT" = 1 && exit 0; sleep 1000 & wait')
    lost = pods_of(cluster, "filler")[0]["spec"]["nodeName"].rsplit("-", 1)[0].replace("gke-sandbox-", "")
    (cluster.directory / "nodes" / f"gke-sandbox-{lost}-0" / "keepsake").write_text("x")
    uid = cluster.request("GET", f"/api/v1/nodes/gke-sandbox-{lost}-0")["metadata"]["uid"]
    cluster.fault("pool-gone", pool=lost, repair_after=80)
    cluster.wait("/api/v1/nodes", f"gke-sandbox-{lost}-0", lambda node: node is None)
    pods = wait_for_pods(cluster, "filler", running(2, "1"))
    assert all(f"-{lost}-" in pod["spec"]["nodeName"] for pod in pods)
    assert cluster.request("GET", f"/api/v1/nodes/gke-sandbox-{lost}-0")["metadata"]["uid"] != uid
    assert not (cluster.directory / "nodes" / f"gke-sandbox-{lost}-0" / "keepsake").exists()


def test_silent_node_keeps_its_pods_terminating(own_cluster: Any, sandbox_jobset: Any) -> None:
    cluster = own_cluster
    cluster.request("POST", JOBSETS, sandbox_jobset("train", "sleep 1000 & wait", tpu="4"))
    pods = wait_for_pods(cluster, "train", running(2, "0"))
    node, name = pods[0]["spec"]["nodeName"], pods[0]["metadata"]["name"]
    began = time.monotonic()
    cluster.fault("node-silent", node=node, repair_after=150)

    def ready(found: Object) -> str:
        return next(str(item["status"]) for item in found["status"]["conditions"] if item["type"] == "Ready")

    cluster.wait("/api/v1/nodes", node, lambda found: ready(found) == "Unknown")
    assert time.monotonic() - began > 3
    cluster.wait(f"{DEFAULT}/pods", name, lambda pod: "deletionTimestamp" in pod["metadata"])
    # 40 s of grace and 30 s of toleration, ten times as fast.
    assert time.monotonic() - began > 6
    stuck = cluster.request("GET", f"{DEFAULT}/pods/{name}")
    assert any(item.get("reason") == "DeletionByTaintManager" for item in stuck["status"]["conditions"])
    assert stuck["status"]["phase"] == "Running"
    other = next(pod for pod in pods_of(cluster, "train") if pod["metadata"]["name"] != name)
    assert attempt(other) == "0"
    # The cloud makes the machine anew: only then the old pod ends, its Job fails and the set restarts.
    wait_for_pods(cluster, "train", running(2, "1"), seconds=40)


def test_a_kubelet_that_was_away_finds_its_node_ready_again(own_cluster: Any) -> None:
    cluster = own_cluster
    cluster.kill("kubelet")
    name = "gke-sandbox-v6e-2x4-0-0"

    def status(found: Object) -> str:
        return next(str(item["status"]) for item in found["status"]["conditions"] if item["type"] == "Ready")

    cluster.wait("/api/v1/nodes", name, lambda node: status(node) == "Unknown")
    cluster.start_kubelet()
    cluster.wait(
        "/api/v1/nodes", name, lambda node: all(taint["key"] == "google.com/tpu" for taint in node["spec"]["taints"])
    )


def test_daemonset_has_a_pod_on_every_node_it_tolerates(own_cluster: Any) -> None:
    cluster = own_cluster
    labels = {"app": "agent"}
    path = "/apis/apps/v1/namespaces/default/daemonsets"
    cluster.request(
        "POST",
        path,
        {
            "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"cloud.google.com/gke-nodepool": "v6e-2x4-1"},
                        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
                        "containers": [{"name": "agent", "image": "x", "command": ["sh", "-c", "sleep 1000 & wait"]}],
                    },
                },
            },
        },
    )
    cluster.wait(path, "agent", lambda found: (found.get("status") or {}).get("numberReady") == 2)
    pods = cluster.items(f"{DEFAULT}/pods")
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["gke-sandbox-v6e-2x4-1-0", "gke-sandbox-v6e-2x4-1-1"]
    # A lost node's pod is collected; the node that comes back gets a new one.
    cluster.fault("pool-gone", pool="v6e-2x4-1", repair_after=60)
    cluster.wait(path, "agent", lambda found: found["status"]["desiredNumberScheduled"] == 0)
    cluster.wait(path, "agent", lambda found: found["status"]["numberReady"] == 2, seconds=30)
    assert not {pod["metadata"]["uid"] for pod in pods} & {
        pod["metadata"]["uid"] for pod in cluster.items(f"{DEFAULT}/pods")
    }


def test_fault_at_a_machine_that_does_not_exist_says_which_do(cluster: Any) -> None:
    from everstep_sandbox.stack.furnish import RequestError

    with pytest.raises(RequestError, match="There is no machine 'nope'; the machines are gke-sandbox-v6e-2x4-0-0, "):
        cluster.fault("node-gone", node="nope")
