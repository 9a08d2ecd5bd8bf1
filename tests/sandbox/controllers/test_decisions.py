"""What the pure parts of the Job and JobSet controllers decide."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from everstep_sandbox.kubernetes.controllers.job import decision as job_decision
from everstep_sandbox.kubernetes.controllers.job import failure_policy, indexes
from everstep_sandbox.kubernetes.controllers.job.pod_template import TRACKING_FINALIZER, build_pod
from everstep_sandbox.kubernetes.controllers.jobset import decision as jobset_decision
from everstep_sandbox.kubernetes.controllers.jobset import failure_policy as set_policy
from everstep_sandbox.kubernetes.controllers.jobset.child_jobs import child_jobs

Object = dict[str, Any]
NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("text", "found"), [("", set()), ("3", {3}), ("0-2,5", {0, 1, 2, 5})])
def test_indexes_read_and_written(text: str, found: set[int]) -> None:
    assert indexes.parse(text) == found
    assert indexes.write(found) == text


def make_job(**spec: Any) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "ns", "uid": "job-uid"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": 2,
            "completions": 2,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
            **spec,
        },
    }


def make_pod(
    index: int, phase: str, *, code: int | None = None, deleting: bool = False, tracked: bool = True
) -> Object:
    pod = build_pod(make_job(), index)
    pod["metadata"] |= {
        "uid": f"pod-{index}-{phase}",
        "name": f"job-{index}",
        "creationTimestamp": "2026-01-01T11:00:00Z",
    }
    if deleting:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:00Z"
    if not tracked:
        pod["metadata"]["finalizers"] = []
    pod["status"] = {"phase": phase}
    if code is not None:
        ended = {"exitCode": code, "finishedAt": "2026-01-01T11:59:50Z"}
        pod["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": ended}}]
    return pod


def decide(job: Object, pods: list[Object]) -> job_decision.Decision:
    return job_decision.decide(job, pods, NOW, speed=10)


def condition_types(status: Object) -> list[str]:
    return [item["type"] for item in status.get("conditions") or ()]


def test_new_job_creates_all_indexes() -> None:
    made = decide(make_job(), [])
    assert made.create == [0, 1] and made.status["startTime"] == "2026-01-01T12:00:00Z"


def test_failed_pod_fails_the_job_only_when_the_others_have_ended() -> None:
    pods = [make_pod(0, "Failed", code=1), make_pod(1, "Running")]
    made = decide(make_job(), pods)
    assert condition_types(made.status) == ["FailureTarget"]
    assert [pod["metadata"]["name"] for pod in made.delete] == ["job-1"] and made.create == []
    job = make_job() | {"status": made.status}
    still = decide(job, [make_pod(0, "Failed", code=1, tracked=False), make_pod(1, "Running", deleting=True)])
    assert condition_types(still.status) == ["FailureTarget"]
    over = decide(job, [make_pod(0, "Failed", code=1, tracked=False), make_pod(1, "Failed", code=143, deleting=True)])
    assert condition_types(over.status) == ["FailureTarget", "Failed"]
    assert over.status["conditions"][1]["reason"] == "BackoffLimitExceeded"


def test_success_needs_every_index_and_counts_each_once() -> None:
    first = decide(make_job(), [make_pod(0, "Succeeded", code=0), make_pod(1, "Running")])
    assert first.status["completedIndexes"] == "0" and first.create == []
    job = make_job() | {"status": first.status}
    last = decide(job, [make_pod(0, "Succeeded", code=0), make_pod(1, "Succeeded", code=0)])
    assert last.status["succeeded"] == 2
    assert condition_types(last.status) == ["SuccessCriteriaMet", "Complete"]


def test_suspending_counts_no_failure() -> None:
    made = decide(make_job(suspend=True), [make_pod(0, "Running"), make_pod(1, "Running")])
    assert len(made.delete) == 2 and len(made.release) == 2
    released = [make_pod(index, "Failed", code=143, deleting=True, tracked=False) for index in (0, 1)]
    after = decide(make_job(suspend=True) | {"status": made.status}, released)
    assert after.status["failed"] == 0 and "FailureTarget" not in condition_types(after.status)


def test_back_off_before_a_failed_pod_is_replaced() -> None:
    """10 s, ten times as fast, since the pod's end 10 s ago: over for the first failure, not for the fifth."""
    job = make_job(backoffLimit=9)
    assert decide(job, [make_pod(0, "Failed", code=1), make_pod(1, "Running")]).create == [0]
    job["status"] = {"failed": 4}
    made = decide(job, [make_pod(0, "Failed", code=1), make_pod(1, "Running")])
    assert made.create == [] and made.again_in == pytest.approx(6)


def test_pod_failure_policy_takes_the_first_rule() -> None:
    policy = {
        "rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "other", "operator": "In", "values": [3]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
        ]
    }
    pod = make_pod(0, "Failed", code=3)
    assert failure_policy.match(policy, pod) == failure_policy.Match(
        "FailJob", "Container c for pod ns/job-0 failed with exit code 3 matching FailJob rule at index 2"
    )
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    assert failure_policy.match(policy, pod) == failure_policy.Match("Ignore")
    assert failure_policy.match(policy, make_pod(0, "Failed", code=42)) is None


def make_jobset(status: Object | None = None, **spec: Any) -> Object:
    template = {"spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}}
    return {
        "metadata": {"name": "js", "namespace": "ns", "uid": "js-uid"},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 2, "template": template}], **spec},
        "status": status or {},
    }


def failed_job(index: int, reason: str, message: str, second: int) -> Object:
    return {
        "metadata": {
            "name": f"js-slice-{index}",
            "uid": f"job-{index}",
            "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "slice", "jobset.sigs.k8s.io/restart-attempt": "0"},
        },
        "spec": {},
        "status": {
            "conditions": [
                {
                    "type": "Failed",
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": f"2026-01-01T12:00:{second:02d}Z",
                }
            ]
        },
    }


RULES = [
    {
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": ["exit code 64 "],
    },
    {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]},
]


@pytest.mark.parametrize(
    ("jobs", "restarts", "kind", "reason", "first", "counts"),
    [
        (
            [failed_job(0, "PodFailurePolicy", "… exit code 64 …", 5)],
            0,
            "fail",
            "FailJobSetFailurePolicyAction",
            0,
            False,
        ),
        # An earlier failure of another kind does not hide a user's error: the first rule that any Job matches decides.
        (
            [
                failed_job(0, "PodFailurePolicy", "exit code 75 …", 1),
                failed_job(1, "PodFailurePolicy", "exit code 64 …", 5),
            ],
            0,
            "fail",
            "FailJobSetFailurePolicyAction",
            1,
            False,
        ),
        (
            [
                failed_job(0, "PodFailurePolicy", "exit code 75 …", 5),
                failed_job(1, "PodFailurePolicy", "exit code 75 …", 2),
            ],
            9,
            "restart",
            "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
            1,
            False,
        ),
        ([failed_job(0, "BackoffLimitExceeded", "", 5)], 0, "restart", "RestartJobSetFailurePolicyAction", 0, True),
        ([failed_job(0, "BackoffLimitExceeded", "", 5)], 1, "fail", "ReachedMaxRestarts", 0, False),
    ],
)
def test_set_failure_policy(
    jobs: list[Object], restarts: int, kind: str, reason: str, first: int, counts: bool
) -> None:
    jobset = make_jobset({"restartsCountTowardsMax": restarts}, failurePolicy={"maxRestarts": 1, "rules": RULES})
    found = set_policy.outcome(jobset, jobs)
    assert (found.kind, found.reason, found.counts) == (kind, reason, counts)
    assert found.message.endswith(f"(first failed job: js-slice-{first})")


def test_set_without_failure_policy_fails() -> None:
    found = set_policy.outcome(make_jobset(), [failed_job(0, "BackoffLimitExceeded", "", 5)])
    assert (found.kind, found.reason) == ("fail", "FailedJobs")


@pytest.mark.parametrize(("strategy", "created"), [("Recreate", ["js-slice-1"]), ("BlockingRecreate", [])])
def test_restart_strategies(strategy: str, created: list[str]) -> None:
    """One Job of the last attempt is still there: the other is made again now, or only when both are gone."""
    jobset = make_jobset({"restarts": 1}, failurePolicy={"maxRestarts": 3, "restartStrategy": strategy})
    old = failed_job(0, "BackoffLimitExceeded", "", 5)
    made = jobset_decision.decide(jobset, [old], NOW)
    assert made.delete == [old]
    assert [job["metadata"]["name"] for job in made.create] == created


def test_child_jobs_carry_what_pods_are_found_by() -> None:
    jobset = make_jobset({"restarts": 2}, coordinator={"replicatedJob": "slice", "jobIndex": 0, "podIndex": 0})
    jobset["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "pool", "mine": "x"}
    _, last = list(child_jobs(jobset))[-1]
    pod = build_pod(
        last | {"metadata": last["metadata"] | {"uid": "u"}} | {"spec": last["spec"] | {"completionMode": "Indexed"}}, 1
    )
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    wanted = {
        "restart-attempt": "2",
        "job-index": "1",
        "global-replicas": "2",
        "coordinator": "js-slice-0-0.js",
        "jobset-uid": "js-uid",
        "replicatedjob-replicas": "2",
    }
    assert {key: labels[f"jobset.sigs.k8s.io/{key}"] for key in wanted} == wanted
    assert annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] == "pool" and "mine" not in annotations
    assert pod["metadata"]["finalizers"] == [TRACKING_FINALIZER]
    assert pod["metadata"]["generateName"] == "js-slice-1-1-"
