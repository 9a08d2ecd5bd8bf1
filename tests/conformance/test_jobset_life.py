"""A JobSet from its creation to its end: what it makes, how that is named and marked, what its status says."""

from __future__ import annotations

from tests.conformance.api import Object
from tests.conformance.bodies import jobset
from tests.conformance.place import Place, conditions, essence, holding

PREFIX = "jobset.sigs.k8s.io/"


def marks(obj: Object, kind: str = "labels") -> dict[str, str]:
    return {key.removeprefix(PREFIX): text for key, text in obj["metadata"][kind].items() if key.startswith(PREFIX)}


def test_names_labels_and_annotations(place: Place) -> None:
    place.add_nodes(2)
    body = jobset("lm", node_selector=place.only_here)
    body["spec"]["coordinator"] = {"replicatedJob": "slice", "jobIndex": 0, "podIndex": 0}
    body["spec"]["replicatedJobs"].insert(0, _named(body["spec"]["replicatedJobs"][0], "head", replicas=1))
    uid = place.create("jobsets", body)["metadata"]["uid"]
    pods = place.wait_for_pods("lm", 6)
    jobs = {job["metadata"]["name"]: job for job in place.list("jobs")}
    assert set(jobs) == {"lm-head-0", "lm-slice-0", "lm-slice-1"}
    last = next(pod for pod in pods if pod["metadata"]["name"].startswith("lm-slice-1-1-"))
    expected = {
        "jobset-name": "lm",
        "jobset-uid": uid,
        "replicatedjob-name": "slice",
        "replicatedjob-replicas": "2",
        "global-replicas": "3",
        "job-index": "1",
        "job-global-index": "2",
        "job-group-index": "2",
        "group-name": "default",
        "group-replicas": "3",
        "restart-attempt": "0",
        "coordinator": "lm-slice-0-0.lm",
    }
    for obj, kind in (
        (jobs["lm-slice-1"], "labels"),
        (jobs["lm-slice-1"], "annotations"),
        (last, "labels"),
        (last, "annotations"),
    ):
        found = marks(obj, kind)
        assert {key: found.get(key) for key in expected} == expected, (obj["metadata"]["name"], kind)
    assert marks(last)["job-key"] == marks(jobs["lm-slice-1"])["job-key"] != marks(jobs["lm-slice-0"])["job-key"]
    assert last["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "lm-slice-1"
    assert last["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert last["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert (last["spec"]["hostname"], last["spec"]["subdomain"]) == ("lm-slice-1-1", "lm")
    # What made them stands in the objects, so that deletion finds them.
    for obj, owner in ((jobs["lm-slice-1"], ("JobSet", "lm")), (last, ("Job", "lm-slice-1"))):
        (reference,) = obj["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"]) == owner
        assert reference["controller"] and reference["blockOwnerDeletion"]


def _named(replicated: Object, name: str, replicas: int) -> Object:
    return {**replicated, "name": name, "replicas": replicas}


def test_the_pods_find_each_other_by_a_service(place: Place) -> None:
    place.create("jobsets", jobset("lm"))
    service = place.wait_for("services", "lm", lambda _: True)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": "lm"}
    assert service["metadata"]["ownerReferences"][0]["name"] == "lm"


def test_runs_and_completes(place: Place) -> None:
    place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    pods = place.wait_for_pods("lm", 4)
    assert [pod["metadata"]["name"].rpartition("-")[0] for pod in pods] == [
        "lm-slice-0-0",
        "lm-slice-0-1",
        "lm-slice-1-0",
        "lm-slice-1-1",
    ]
    running = place.wait_for("jobsets", "lm", lambda found: replicated(found).get("ready") == 2)
    assert replicated(running) == {
        "name": "slice",
        "ready": 2,
        "succeeded": 0,
        "failed": 0,
        "active": 2,
        "suspended": 0,
    }
    for pod in pods[:2]:
        place.kubelet.finish(pod)
    half = place.wait_for("jobsets", "lm", lambda found: replicated(found)["succeeded"] == 1)
    assert not holding(half) & {"Completed", "Failed"}
    for pod in pods[2:]:
        place.kubelet.finish(pod)
    ended = place.wait_for_end("lm")
    assert essence(conditions(ended)["Completed"]) == ("True", "AllJobsCompleted", "jobset completed successfully")
    assert ended["status"]["terminalState"] == "Completed"
    assert (ended["status"]["restarts"], ended["status"].get("restartsCountTowardsMax", 0)) == (0, 0)
    job = place.get("jobs", "lm-slice-0")
    assert list(job["status"]["conditions"]) and [item["type"] for item in job["status"]["conditions"]] == [
        "SuccessCriteriaMet",
        "Complete",
    ]
    assert (job["status"]["succeeded"], job["status"]["completedIndexes"]) == (2, "0,1")
    assert job["status"]["startTime"] and job["status"]["completionTime"]
    event = place.wait_for_event("AllJobsCompleted", "lm")
    assert (event["type"], event["message"]) == ("Normal", "jobset completed successfully")
    # The pods stay to be looked at.
    assert len(place.list("pods", fieldSelector="status.phase=Succeeded")) == 4


def replicated(found: Object) -> Object:
    """The status of the JobSet's first replicated job, without the newer per-job counters."""
    rows = (found.get("status") or {}).get("replicatedJobsStatus") or [{}]
    return {key: value for key, value in rows[0].items() if not key.startswith("job")}


def test_conditions_come_in_order(place: Place) -> None:
    place.add_nodes(1)
    with place.record("jobsets") as recording:
        place.create("jobsets", jobset("lm", slices=1, hosts=1, node_selector=place.only_here))
        (pod,) = place.wait_for_pods("lm", 1)
        place.kubelet.finish(pod)
        events = recording.wait(lambda found: bool(found) and "Completed" in holding(found[-1]["object"]))
    told = [holding(event["object"]) & {"Completed", "Failed"} for event in events]
    # Nothing is said of an end before it has come, and it comes with all that belongs to it.
    assert not any(told[:-1]) and told[-1] == {"Completed"}
    assert all("terminalState" not in (event["object"].get("status") or {}) for event in events[:-1])
    assert events[-1]["object"]["status"]["terminalState"] == "Completed"
    ready = [replicated(event["object"]).get("ready", 0) for event in events]
    assert ready == sorted(ready[:-1]) + ready[-1:]


def test_one_success_is_enough_where_the_policy_says_so(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("lm", hosts=1, node_selector=place.only_here)
    body["spec"]["successPolicy"] = {"operator": "Any", "targetReplicatedJobs": ["slice"]}
    place.create("jobsets", body)
    pods = place.wait_for_pods("lm", 2)
    place.kubelet.finish(pods[0])
    assert place.wait_for_end("lm")["status"]["terminalState"] == "Completed"
    place.wait_gone("jobs", "lm-slice-1")
    assert place.find("jobs", "lm-slice-0") is not None


def test_a_finished_set_is_removed_after_its_time(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("lm", slices=1, hosts=1, node_selector=place.only_here)
    body["spec"]["ttlSecondsAfterFinished"] = 1
    place.create("jobsets", body)
    (pod,) = place.wait_for_pods("lm", 1)
    place.kubelet.finish(pod)
    place.wait_for_end("lm")
    place.wait_gone("jobsets", "lm")
    place.wait("pods", lambda found: not found)


def test_foreground_deletion_takes_all_along(place: Place) -> None:
    nodes = place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    place.wait_for_pods("lm", 4)
    with place.kubelet.holding_ends(*nodes):
        place.delete("jobsets", "lm", propagationPolicy="Foreground")
        place.wait("pods", lambda found: all("deletionTimestamp" in pod["metadata"] for pod in found.values()))
        held = place.get("jobsets", "lm")
        assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    place.wait_gone("jobsets", "lm")
    assert place.list("pods") == [] and place.list("jobs") == []


def test_one_that_somebody_else_manages_is_left_alone(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("theirs", slices=1, hosts=1, node_selector=place.only_here)
    body["spec"]["managedBy"] = "conformance.everstep.dev/nobody"
    place.create("jobsets", body)
    place.create("jobsets", jobset("ours", slices=1, hosts=1, node_selector=place.only_here))
    place.wait_for_pods("ours", 1)
    assert {job["metadata"]["name"] for job in place.list("jobs")} == {"ours-slice-0"}
    assert not place.get("jobsets", "theirs").get("status")
