"""JobSets of real shell processes: completion, exit codes and signals against the failure policy.

What needs no processes stands in tests/conformance, for this control plane and for a real one.
"""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.sandbox

Object = dict[str, Any]


def ended(jobset: Object | None) -> bool:
    return bool(jobset and (jobset.get("status") or {}).get("terminalState"))


def condition(obj: Object, kind: str) -> Object:
    return next(item for item in obj["status"]["conditions"] if item["type"] == kind)


def test_runs_and_completes(namespace: Any, sandbox_jobset: Any) -> None:
    namespace.create("jobsets", sandbox_jobset("js", "echo done", slices=2))
    jobset = namespace.wait("jobsets", "js", ended)
    assert jobset["status"]["terminalState"] == "Completed"
    assert condition(jobset, "Completed")["reason"] == "AllJobsCompleted"
    assert jobset["status"]["replicatedJobsStatus"][0]["succeeded"] == 2
    assert {job["metadata"]["name"] for job in namespace.list("jobs")} == {"js-slice-0", "js-slice-1"}
    pods = namespace.list("pods")
    assert [pod["metadata"]["name"].rsplit("-", 1)[0] for pod in pods] == [
        "js-slice-0-0",
        "js-slice-0-1",
        "js-slice-1-0",
        "js-slice-1-1",
    ]
    labels = pods[3]["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/job-global-index"] == "1"
    assert labels["jobset.sigs.k8s.io/restart-attempt"] == "0"
    assert labels["batch.kubernetes.io/job-completion-index"] == "1"
    assert (pods[3]["spec"]["hostname"], pods[3]["spec"]["subdomain"]) == ("js-slice-1-1", "js")
    service = namespace.get("services", "js")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert namespace.log(pods[0]["metadata"]["name"], "trainer") == "done\n"


def test_user_error_fails_the_set_at_once(namespace: Any, sandbox_jobset: Any) -> None:
    namespace.create("jobsets", sandbox_jobset("js", 'test "$JOB_COMPLETION_INDEX" = 1 && exit 64; sleep 100'))
    jobset = namespace.wait("jobsets", "js", ended)
    assert condition(jobset, "Failed")["reason"] == "FailJobSetFailurePolicyAction"
    assert condition(jobset, "Failed")["message"].endswith("(first failed job: js-slice-0)")
    assert jobset["status"]["restarts"] == 0
    failed = condition(namespace.get("jobs", "js-slice-0"), "Failed")
    pod = next(pod for pod in namespace.list("pods") if "-0-1-" in pod["metadata"]["name"])
    assert failed["reason"] == "PodFailurePolicy"
    assert failed["message"] == (
        f"Container trainer for pod {namespace.name}/{pod['metadata']['name']} failed with exit code 64 "
        "matching FailJob rule at index 0"
    )


def test_lost_peer_restarts_without_eating_the_budget(namespace: Any, sandbox_jobset: Any) -> None:
    script = 'test "$ATTEMPT" -lt 3 && exit 75; echo attempt $ATTEMPT'
    namespace.create("jobsets", sandbox_jobset("js", script, max_restarts=0))
    jobset = namespace.wait("jobsets", "js", ended)
    assert jobset["status"]["terminalState"] == "Completed"
    assert (jobset["status"]["restarts"], jobset["status"]["restartsCountTowardsMax"]) == (3, 0)
    assert len(namespace.events("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction")) >= 1


def test_blocking_recreate_waits_for_every_old_pod(namespace: Any, sandbox_jobset: Any) -> None:
    """Slice 1 takes a second to end after SIGTERM; no pod of the next attempt exists before it has."""
    script = (
        'test "$ATTEMPT" = 1 && exit 0; trap "sleep 1; exit 0" TERM; test "$JOB_INDEX" = 0 && exit 75; sleep 100 & wait'
    )
    body = sandbox_jobset("js", script, slices=2)
    body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"].append(
        {
            "name": "JOB_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}},
        }
    )
    namespace.create("jobsets", body)
    namespace.wait("jobsets", "js", ended)
    lives: dict[str, list[int]] = {"": []}
    pods = [
        write
        for write in namespace.cluster.writes()
        if write["resource"] == "pods" and write["namespace"] == namespace.name
    ]
    for number, write in enumerate(pods):
        lives.setdefault(write["uid"], []).append(number)
    created = [number for number, write in enumerate(pods) if write["verb"] == "create"]
    assert len(created) == 8
    last_of_first_attempt = max(lives[pods[number]["uid"]][-1] for number in created[:4])
    assert last_of_first_attempt < created[4]
