"""Objects: identity, versions, conflicts, generation, the status subresource, defaults and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.api import JSON, Object, Refusal, path_of
from tests.conformance.bodies import config_map, job, jobset, pod
from tests.conformance.place import Place


def refusal(action: Callable[[], Any]) -> Refusal:
    with pytest.raises(Refusal) as refused:
        action()
    return refused.value


def test_a_new_object_has_an_identity(place: Place) -> None:
    first = place.create("configmaps", config_map("a"))
    second = place.create("configmaps", {"metadata": {"generateName": "a-"}})
    assert (first["kind"], first["apiVersion"]) == ("ConfigMap", "v1")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["metadata"]["creationTimestamp"])
    assert re.fullmatch(r"a-[a-z0-9]{5}", second["metadata"]["name"])


def test_a_name_is_taken_once(place: Place) -> None:
    first = place.create("jobsets", jobset("lm"))
    taken = refusal(lambda: place.create("jobsets", jobset("lm")))
    assert taken.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'jobsets.jobset.x-k8s.io "lm" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "lm", "group": "jobset.x-k8s.io", "kind": "jobsets"},
        "code": 409,
    }
    place.delete("jobsets", "lm", propagationPolicy="Background")
    place.wait_gone("jobsets", "lm")
    assert place.create("jobsets", jobset("lm"))["metadata"]["uid"] != first["metadata"]["uid"]


def test_what_is_not_there_is_named(place: Place) -> None:
    missing = refusal(lambda: place.get("jobsets", "nope"))
    assert (missing.code, missing.reason) == (404, "NotFound")
    assert missing.message == 'jobsets.jobset.x-k8s.io "nope" not found'
    assert missing.body["details"] == {"name": "nope", "group": "jobset.x-k8s.io", "kind": "jobsets"}
    missing = refusal(lambda: place.get("pods", "nope"))
    assert (missing.message, missing.body["details"]) == ('pods "nope" not found', {"name": "nope", "kind": "pods"})


@pytest.mark.parametrize("plural", ["configmaps", "jobsets"])
def test_an_update_from_a_stale_version_is_a_conflict(place: Place, plural: str) -> None:
    stale = place.create(plural, config_map("a") if plural == "configmaps" else jobset("a"))
    fresh = place.patch(plural, "a", {"metadata": {"labels": {"x": "1"}}})
    for method, body in (("PUT", stale), ("PATCH", {"metadata": {"resourceVersion": "1", "labels": {"x": "2"}}})):
        refused = refusal(
            lambda method=method, body=body: place.api.request(  # type: ignore[misc]
                method,
                place.path(plural, "a"),
                body,
                content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
            )
        )
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "the object has been modified; please apply your changes to the latest version" in refused.message
    stored = place.get(plural, "a")
    assert stored["metadata"]["labels"]["x"] == "1"
    assert int(stored["metadata"]["resourceVersion"]) >= int(fresh["metadata"]["resourceVersion"])


def test_an_update_for_an_other_uid_is_a_conflict_and_a_patch_is_invalid(place: Place) -> None:
    other = "00000000-0000-0000-0000-000000000000"
    created = place.create("jobsets", jobset("a"))
    body: Object = {"metadata": {"uid": other}, "spec": {"suspend": True}}
    refused = refusal(lambda: place.patch("jobsets", "a", body))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert f'metadata.uid: Invalid value: "{other}": field is immutable' in refused.message
    body["metadata"]["uid"] = created["metadata"]["uid"]
    assert place.patch("jobsets", "a", body)["spec"]["suspend"] is True

    replacement = config_map("a", {"x": "1"}, uid=other)
    place.create("configmaps", config_map("a"))
    refused = refusal(lambda: place.api.request("PUT", place.path("configmaps", "a"), replacement))
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: {other}, UID in object meta: " in refused.message


def test_a_custom_resource_is_replaced_only_from_a_version(place: Place) -> None:
    created = place.create("jobsets", jobset("a"))
    del created["metadata"]["resourceVersion"]
    refused = refusal(lambda: place.api.request("PUT", place.path("jobsets", "a"), created))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message
    place.create("configmaps", config_map("a", {"x": "1"}))
    replaced = place.api.request("PUT", place.path("configmaps", "a"), config_map("a", {"x": "2"}))
    assert replaced["data"] == {"x": "2"}


def test_a_write_that_changes_nothing_is_none(place: Place) -> None:
    created = place.create("configmaps", config_map("a", {"x": "1"}))
    patched = place.patch("configmaps", "a", {"data": {"x": "1"}})
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


def test_generation_counts_changes_of_the_spec(place: Place) -> None:
    # Suspended, so that no controller writes meanwhile.
    body = jobset("a")
    body["spec"]["suspend"] = True
    assert place.create("jobsets", body)["metadata"]["generation"] == 1
    assert place.patch("jobsets", "a", {"metadata": {"annotations": {"x": "1"}}})["metadata"]["generation"] == 1
    assert place.patch("jobsets", "a", {"spec": {"suspend": False}})["metadata"]["generation"] == 2
    assert place.patch("jobsets", "a", {"spec": {"suspend": False}})["metadata"]["generation"] == 2


def test_status_and_spec_are_written_apart(place: Place) -> None:
    body = jobset("a")
    # Somebody else's: no controller acts on it.
    body["spec"]["managedBy"] = "conformance.everstep.dev/nobody"
    created = place.create("jobsets", {**body, "status": {"restarts": 7}})
    assert "restarts" not in (created.get("status") or {})
    status: Object = {
        "restarts": 2,
        "restartsCountTowardsMax": 1,
        "conditions": [
            {
                "type": "Completed",
                "status": "True",
                "reason": "AllJobsCompleted",
                "message": "done",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    by_status = place.api.patch(place.path("jobsets", "a", "status"), {"status": status, "spec": {"suspend": True}})
    assert by_status["status"]["restarts"] == 2
    assert not by_status["spec"].get("suspend")
    assert by_status["metadata"]["generation"] == 1
    by_spec = place.patch("jobsets", "a", {"spec": {"suspend": True}, "status": {"restarts": 3}})
    assert by_spec["status"]["restarts"] == 2
    assert by_spec["spec"]["suspend"] is True


def test_immutable_fields_are_refused_by_the_definition_and_by_the_webhook(place: Place) -> None:
    created = place.create("jobsets", jobset("a"))
    refused = refusal(lambda: place.patch("jobsets", "a", {"spec": {"failurePolicy": {"maxRestarts": 9}}}))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.startswith('JobSet.jobset.x-k8s.io "a" is invalid: ')
    assert "spec.failurePolicy: Invalid value: Value is immutable" in refused.message

    replicated = created["spec"]["replicatedJobs"]
    replicated[0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    refused = refusal(lambda: place.patch("jobsets", "a", {"spec": {"replicatedJobs": replicated}}))
    assert refused.code == 403
    assert refused.message.startswith('admission webhook "vjobset.kb.io" denied the request: spec.replicatedJobs: ')
    assert refused.message.endswith("field is immutable")


def test_unknown_fields_are_refused_where_validation_is_strict(place: Place) -> None:
    body = jobset("a")
    body["spec"]["failurePolicy"]["maxRestart"] = 1
    refused = refusal(lambda: place.create("jobsets", body, fieldValidation="Strict"))
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.failurePolicy.maxRestart"' in refused.message
    assert "maxRestart" not in place.create("jobsets", body)["spec"]["failurePolicy"]

    wrong = pod("a", restartPolice="Never")
    refused = refusal(lambda: place.create("pods", wrong, fieldValidation="Strict"))
    assert refused.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.restartPolice"'
    )


def test_values_that_there_are_not_are_named(place: Place) -> None:
    body = jobset("a")
    body["spec"]["failurePolicy"]["restartStrategy"] = "Sometimes"
    refused = refusal(lambda: place.create("jobsets", body))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert 'spec.failurePolicy.restartStrategy: Unsupported value: "Sometimes": supported values: ' in refused.message
    assert "spec.failurePolicy.restartStrategy" in {cause["field"] for cause in refused.body["details"]["causes"]}


@pytest.mark.parametrize(("length", "fits"), [(47, True), (48, False)])
def test_a_jobsets_name_leaves_room_for_its_pods(place: Place, length: int, fits: bool) -> None:
    body = jobset("a" * length, slices=3)
    body["spec"]["suspend"] = True
    if fits:
        place.create("jobsets", body)
        return
    refused = refusal(lambda: place.create("jobsets", body))
    assert refused.code == 403
    assert "pod names generated for this JobSet will exceed 63 characters" in refused.message


def test_a_jobset_gets_defaults(place: Place) -> None:
    body = jobset("a")
    for given in ("restartStrategy",):
        del body["spec"]["failurePolicy"][given]
    del body["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"]
    spec = place.create("jobsets", body)["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["failurePolicy"]["restartStrategy"] == "Recreate"
    replicated = spec["replicatedJobs"][0]
    assert (replicated["replicas"], replicated["groupName"]) == (2, "default")
    assert replicated["template"]["spec"]["completionMode"] == "Indexed"


def test_a_job_gets_defaults_and_keeps_its_template(place: Place) -> None:
    body = job("a", suspend=True)
    del body["spec"]["backoffLimit"]
    created = place.create("jobs", body)
    uid = created["metadata"]["uid"]
    assert created["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert created["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
    assert (created["spec"]["backoffLimit"], created["spec"]["podReplacementPolicy"]) == (6, "TerminatingOrFailed")
    changed = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}]
    refused = refusal(lambda: place.patch("jobs", "a", changed, JSON))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "spec.template.spec: Invalid value" in refused.message and "field is immutable" in refused.message


def test_a_pod_failure_policy_needs_restart_policy_never(place: Place) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64]}}
    body = job("a", podFailurePolicy={"rules": [rule]})
    body["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    refused = refusal(lambda: place.create("jobs", body))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert 'only "Never" is supported when podFailurePolicy is specified' in refused.message


def test_a_pods_priority_comes_from_its_class(place: Place) -> None:
    high = place.priority("high", 1000)
    assert place.create("pods", pod("a", priorityClassName=high))["spec"]["priority"] == 1000
    assert place.create("pods", pod("b"))["spec"]["priority"] == 0
    refused = refusal(lambda: place.create("pods", pod("x", priorityClassName="nope")))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == 'pods "x" is forbidden: no PriorityClass with name nope was found'


def test_a_priority_class_never_changes_its_value(place: Place) -> None:
    path = path_of("priorityclasses", None, place.priority("high", 1000))
    refused = refusal(lambda: place.api.patch(path, {"value": 2000}))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.endswith("value: Forbidden: may not be changed in an update.")
    refused = refusal(lambda: place.api.patch(path, {"preemptionPolicy": "Never"}))
    assert 'preemptionPolicy: Invalid value: "Never": field is immutable' in refused.message


def test_amounts_come_back_as_text(place: Place) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"google.com/tpu": 4}}
    resources = place.create("pods", body)["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"google.com/tpu": "4"}, "requests": {"google.com/tpu": "4"}}


def test_a_dry_run_leaves_nothing(place: Place) -> None:
    answer = place.create("jobsets", jobset("a"), dryRun="All")
    assert answer["spec"]["startupPolicy"]
    assert place.find("jobsets", "a") is None


def test_paths_that_are_not_served(place: Place) -> None:
    for path in ("/api/v1/unicorns", "/apis/nope.example.com/v1/things"):
        assert refusal(lambda path=path: place.api.get(path)).code == 404  # type: ignore[misc]
