"""Defaults, mutation and refusals, with the texts that clients see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.store import Store

Make = Callable[..., dict[str, Any]]


def refusal(action: Callable[[], Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        action()
    return refused.value


def test_a_jobset_gets_what_its_webhook_sets(store: Store, make_jobset: Make) -> None:
    rules = [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]
    jobset = make_jobset("a", failurePolicy={"maxRestarts": 1, "rules": rules})
    spec = store.create("jobsets", "default", jobset)["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["failurePolicy"]["restartStrategy"] == "Recreate"
    assert spec["failurePolicy"]["rules"][0]["name"] == "failurePolicyRule0"
    assert spec["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"
    assert spec["replicatedJobs"][0]["groupName"] == "default"


@pytest.mark.parametrize(("length", "fits"), [(47, True), (48, False)])
def test_a_jobsets_name_has_to_leave_room_for_its_pods(
    store: Store, make_jobset: Make, length: int, fits: bool
) -> None:
    jobset = make_jobset("a" * length)
    jobset["spec"]["replicatedJobs"][0]["replicas"] = 3
    if fits:
        store.create("jobsets", "default", jobset)
        return
    error = refusal(lambda: store.create("jobsets", "default", jobset))
    assert error.code == 403
    assert 'admission webhook "vjobset.kb.io" denied the request' in error.message
    assert "pod names generated for this JobSet will exceed 63 characters" in error.message


def test_immutable_fields_of_a_jobset(store: Store, make_jobset: Make) -> None:
    created = store.create("jobsets", "default", make_jobset("a", failurePolicy={"maxRestarts": 1}))

    created["spec"]["failurePolicy"]["maxRestarts"] = 2
    error = refusal(lambda: store.update("jobsets", "default", created))
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == (
        'JobSet.jobset.x-k8s.io "a" is invalid: spec.failurePolicy: Invalid value: Value is immutable'
    )

    changed = {"spec": {"replicatedJobs": [{**created["spec"]["replicatedJobs"][0], "replicas": 3}]}}
    error = refusal(lambda: store.patch("jobsets", "default", "a", changed))
    assert error.code == 403
    assert "denied the request: spec.replicatedJobs: Invalid value" in error.message
    assert error.message.endswith("field is immutable")


def test_suspend_and_labels_of_a_jobset_may_change_and_scheduling_while_suspended(
    store: Store, make_jobset: Make
) -> None:
    created = store.create("jobsets", "default", make_jobset("a"))
    store.patch("jobsets", "default", "a", {"spec": {"suspend": True}, "metadata": {"labels": {"x": "y"}}})
    replicated = created["spec"]["replicatedJobs"][0]
    replicated["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
    moved = store.patch("jobsets", "default", "a", {"spec": {"replicatedJobs": [replicated]}})
    template = moved["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"pool": "b"}

    replicated["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    error = refusal(lambda: store.patch("jobsets", "default", "a", {"spec": {"replicatedJobs": [replicated]}}))
    assert "field is immutable" in error.message


def test_a_wrong_type_in_a_custom_resource_is_named_and_unknown_fields_are_pruned(
    store: Store, make_jobset: Make
) -> None:
    wrong = make_jobset("a", suspend="yes", failurePolicy={"restartStrategy": "Sometimes"})
    error = refusal(lambda: store.create("jobsets", "default", wrong))
    assert error.code == 422
    assert 'spec.suspend: Invalid value: "string": spec.suspend in body must be of type boolean' in error.message
    assert 'spec.failurePolicy.restartStrategy: Unsupported value: "Sometimes"' in error.message

    wrong = make_jobset("a")
    container = wrong["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "STEPS", "value": 5}]
    error = refusal(lambda: store.create("jobsets", "default", wrong))
    assert error.details["causes"][0]["field"] == (
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[0].value"
    )

    spec = {"cloudStorageBucketName": "b", "mountOptions": ["implicit-dirs"]}
    stored = store.create("checkpointconfigurations", None, {"metadata": {"name": "c"}, "spec": spec})
    assert stored["spec"] == {"cloudStorageBucketName": "b"}


def test_amounts_of_resources_come_back_as_text(store: Store, make_jobset: Make, make_pod: Make) -> None:
    jobset, pod = make_jobset("a"), make_pod("a")
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    for spec in (template["spec"], pod["spec"]):
        spec["containers"][0]["resources"] = {"limits": {"google.com/tpu": 4}}
    stored = store.create("jobsets", "default", jobset)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    made = store.create("pods", "default", pod)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"google.com/tpu": "4"},
        "requests": {"google.com/tpu": "4"},
    }


def test_a_pods_priority_comes_from_its_class(store: Store, make_pod: Make) -> None:
    store.create("priorityclasses", None, {"metadata": {"name": "high"}, "value": 1000})
    assert store.create("pods", "default", make_pod("a", priorityClassName="high"))["spec"]["priority"] == 1000
    assert store.create("pods", "default", make_pod("b"))["spec"]["priority"] == 0

    error = refusal(lambda: store.create("pods", "default", make_pod("x", priorityClassName="nope")))
    assert error.code == 403
    assert error.message == 'pods "x" is forbidden: no PriorityClass with name nope was found'


def test_priority_classes_are_bounded_and_never_change(store: Store) -> None:
    store.create("priorityclasses", None, {"metadata": {"name": "high"}, "value": 1000})
    error = refusal(lambda: store.patch("priorityclasses", None, "high", {"value": 2000}))
    assert error.message == (
        'PriorityClass.scheduling.k8s.io "high" is invalid: value: Forbidden: may not be changed in an update.'
    )
    error = refusal(lambda: store.patch("priorityclasses", None, "high", {"preemptionPolicy": "Never"}))
    assert 'preemptionPolicy: Invalid value: "Never": field is immutable' in error.message
    error = refusal(
        lambda: store.create("priorityclasses", None, {"metadata": {"name": "huge"}, "value": 1_000_000_001})
    )
    assert "maximum allowed value of a user defined priority is 1000000000" in error.message


def job(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def test_a_job_gets_its_selector_and_defaults(store: Store) -> None:
    created = store.create("jobs", "default", job("a"))
    uid = created["metadata"]["uid"]
    assert created["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert created["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
    assert (created["spec"]["backoffLimit"], created["spec"]["podReplacementPolicy"]) == (6, "TerminatingOrFailed")

    created["spec"]["template"]["spec"]["containers"][0]["image"] = "y"
    assert "spec.template.spec: Invalid value" in refusal(lambda: store.update("jobs", "default", created)).message


def test_a_pod_failure_policy_needs_restart_policy_never(store: Store) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64]}}
    wrong = job("a", podFailurePolicy={"rules": [rule]})
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    error = refusal(lambda: store.create("jobs", "default", wrong))
    assert 'only "Never" is supported when podFailurePolicy is specified' in error.message


@pytest.mark.parametrize(
    ("exit_codes", "text"),
    [
        ({"operator": "In", "values": [0, 1]}, "must not be 0 for the In operator"),
        ({"operator": "In", "values": [2, 1]}, "must be ordered"),
        ({"operator": "Is", "values": [1]}, "supported values"),
        ({"operator": "In", "values": [1], "containerName": "other"}, "must be one of the container"),
        ({"operator": "In", "values": []}, "at least one value is required"),
    ],
)
def test_exit_code_rules_are_checked(store: Store, exit_codes: dict[str, Any], text: str) -> None:
    wrong = job("a", podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": exit_codes}]})
    assert text in refusal(lambda: store.create("jobs", "default", wrong)).message


def test_all_findings_about_a_pod_come_at_once(store: Store) -> None:
    container = {
        "name": "Main",
        "volumeMounts": [{"name": "gone", "mountPath": "/x"}],
        "resources": {"requests": {"google.com/tpu": "4", "memory": "lots"}},
    }
    error = refusal(
        lambda: store.create("pods", "default", {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
    )
    assert {cause["field"] for cause in error.details["causes"]} == {
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.containers[0].volumeMounts[0].name",
        "spec.containers[0].resources.requests[memory]",
        "spec.containers[0].resources.limits",
    }


def test_a_pods_spec_hardly_changes(store: Store, make_pod: Make) -> None:
    created = store.create("pods", "default", make_pod("a"))
    created["spec"]["containers"][0]["image"] = "busybox:2"
    created["spec"]["tolerations"].append({"key": "k", "operator": "Exists"})
    changed = store.update("pods", "default", created)
    changed["spec"]["nodeName"] = "by-hand"
    error = refusal(lambda: store.update("pods", "default", changed))
    assert "pod updates may not change fields other than" in error.message


def test_service_accounts_and_namespaces_have_to_exist(store: Store, make_pod: Make) -> None:
    error = refusal(lambda: store.create("pods", "default", make_pod("a", serviceAccountName="nobody")))
    assert 'serviceaccount "nobody" not found' in error.message
    error = refusal(lambda: store.create("pods", "nowhere", make_pod("a")))
    assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
def test_names_are_checked(store: Store, name: str) -> None:
    error = refusal(lambda: store.create("configmaps", "default", {"metadata": {"name": name}}))
    assert error.code == 422 and "metadata.name" in error.message
