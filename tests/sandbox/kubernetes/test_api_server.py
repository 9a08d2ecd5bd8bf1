"""The API server as a process, through the official client and plain HTTP."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

pytestmark = pytest.mark.sandbox

Make = Callable[..., dict[str, Any]]
NAMESPACE = "default"


@pytest.fixture(scope="module")
def custom(api_server: Any) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api_server.api_client())


def test_objects_through_the_typed_client(core: client.CoreV1Api, namespace: str, make_pod: Make) -> None:
    created = core.create_namespaced_pod(namespace, make_pod("a"))
    assert created.spec.restart_policy == "Always" and created.status.phase == "Pending"
    listed = core.list_namespaced_pod(namespace, label_selector="!x", field_selector="status.phase=Pending")
    assert [item.metadata.uid for item in listed.items] == [created.metadata.uid]

    stale = core.read_namespaced_pod("a", namespace)
    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(client.ApiException) as conflict:
        core.replace_namespaced_pod("a", namespace, stale)
    assert (conflict.value.status, json.loads(conflict.value.body)["reason"]) == (409, "Conflict")

    core.delete_namespaced_pod("a", namespace)
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_pod("a", namespace)
    assert json.loads(missing.value.body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 404,
        "reason": "NotFound",
        "message": 'pods "a" not found',
        "details": {"name": "a", "kind": "pods"},
    }


def test_a_jobset_through_the_custom_objects_client(
    custom: client.CustomObjectsApi, namespace: str, make_jobset: Make
) -> None:
    where = ("jobset.x-k8s.io", "v1alpha2", namespace, "jobsets")
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **make_jobset("a")}
    custom.create_namespaced_custom_object(*where, body)
    patched = custom.patch_namespaced_custom_object(*where, "a", {"spec": {"suspend": True}})
    assert patched["spec"]["suspend"] is True
    with_status = custom.patch_namespaced_custom_object_status(*where, "a", {"status": {"restarts": 2}})
    assert with_status["status"]["restarts"] == 2
    with pytest.raises(client.ApiException) as refused:
        custom.create_namespaced_custom_object(*where, body)
    assert refused.value.status == 409
    custom.delete_namespaced_custom_object(*where, "a", propagation_policy="Foreground")


def test_pages_of_a_list_show_one_moment(core: client.CoreV1Api, namespace: str, make_config_map: Make) -> None:
    for index in range(5):
        core.create_namespaced_config_map(namespace, make_config_map(f"c{index}"))
    first = core.list_namespaced_config_map(namespace, limit=2)
    assert first.metadata.remaining_item_count == 3
    core.delete_namespaced_config_map("c3", namespace)
    core.create_namespaced_config_map(namespace, make_config_map("c9"))

    names, page = [item.metadata.name for item in first.items], first
    while page.metadata._continue:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=page.metadata._continue)
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [item.metadata.name for item in page.items]
    assert names == ["c0", "c1", "c2", "c3", "c4"]


def test_faults_refuse_delay_and_count_down(api_server: Any) -> None:
    api_server.ask_fault(match="GET /api/v1/nodes", status=429, times=2, retryAfter=3)
    for _ in range(2):
        status, body, headers = api_server.request("/api/v1/nodes")
        assert (status, body["reason"], headers["Retry-After"]) == (429, "TooManyRequests", "3")
    assert api_server.request("/api/v1/nodes")[0] == 200

    api_server.ask_fault(match="GET /api/v1/nodes", delay_ms=300)
    began = time.monotonic()
    assert api_server.request("/api/v1/nodes")[0] == 200
    assert time.monotonic() - began >= 0.3

    api_server.ask_fault(match="GET /api/v1/nodes", reset=True)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        api_server.request("/api/v1/nodes")

    assert api_server.request("/_sandbox/faults", method="POST", body={"match": "("})[0] == 400


def test_without_the_token_a_server_that_requires_it_answers_401(start_server: Any) -> None:
    server = start_server("--require-token")
    status, body, _ = server.request("/api/v1/nodes")
    assert (status, body["reason"]) == (401, "Unauthorized")
    assert server.request("/api/v1/nodes", Authorization="Bearer wrong")[0] == 401
    assert server.request("/api/v1/nodes", Authorization=f"Bearer {server.token}")[0] == 200
    assert client.CoreV1Api(server.api_client()).list_node().items == []


def test_a_killed_server_comes_back_at_its_address_with_all_objects(start_server: Any, make_config_map: Make) -> None:
    server = start_server()
    core = client.CoreV1Api(server.api_client())
    written = [core.create_namespaced_config_map(NAMESPACE, make_config_map(f"c{index}")) for index in range(50)]
    address = server.address
    server.kill()
    server.start()
    assert server.address == address
    listed = client.CoreV1Api(server.api_client()).list_namespaced_config_map(NAMESPACE)
    assert {(item.metadata.name, item.metadata.uid) for item in listed.items} == {
        (item.metadata.name, item.metadata.uid) for item in written
    }


def test_strict_validation_names_every_unknown_field(api_server: Any, make_pod: Make, make_jobset: Make) -> None:
    pod = make_pod("strict", restartPolice="Never")
    pod["spec"]["containers"][0]["commands"] = []
    path = "/api/v1/namespaces/default/pods?fieldValidation=Strict"
    status, body, _ = api_server.request(path, method="POST", body=pod)
    assert status == 400
    assert body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].commands", unknown field "spec.restartPolice"'
    )
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?fieldValidation=Strict"
    jobset = make_jobset("strict", failurePolicy={"maxRestart": 1})
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["backOffLimit"] = 1
    status, body, _ = api_server.request(path, method="POST", body=jobset)
    assert 'unknown field "spec.failurePolicy.maxRestart"' in body["message"]
    assert 'unknown field "spec.replicatedJobs[0].template.spec.backOffLimit"' in body["message"]
    assert api_server.request(path, method="POST", body=make_jobset("strict"))[0] == 201


def test_deleting_a_job_without_a_policy_orphans_its_pods(api_server: Any, namespace: str, make_pod: Make) -> None:
    batch, core = client.BatchV1Api(api_server.api_client()), client.CoreV1Api(api_server.api_client())
    template = {"spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}}
    for name, policy, survives in (("plain", None, True), ("swept", "Background", False)):
        job = batch.create_namespaced_job(namespace, {"metadata": {"name": name}, "spec": {"template": template}})
        pod = make_pod(name)
        pod["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.metadata.uid}
        ]
        core.create_namespaced_pod(namespace, pod)
        batch.delete_namespaced_job(name, namespace, **({"propagation_policy": policy} if policy else {}))
        expected = [name] if survives else []
        deadline = time.monotonic() + 5
        while True:
            left = core.list_namespaced_pod(namespace, field_selector=f"metadata.name={name}").items
            if [item.metadata.name for item in left if not item.metadata.owner_references] == expected and (
                survives or not left
            ):
                break
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def test_server_side_apply_and_dry_run(api_server: Any, core: client.CoreV1Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/a?fieldManager=me"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    content_type = {"Content_Type": "application/apply-patch+yaml"}
    assert api_server.request(path + "&dryRun=All", method="PATCH", body=body, **content_type)[0] == 201
    assert core.list_namespaced_config_map(namespace).items == []

    assert api_server.request(path, method="PATCH", body=body, **content_type)[0] == 201
    status, again, _ = api_server.request(path, method="PATCH", body=body, **content_type)
    assert status == 200
    written = core.read_namespaced_config_map("a", namespace)
    assert again["metadata"]["resourceVersion"] == written.metadata.resource_version


def test_requests_are_counted_by_kind(start_server: Any) -> None:
    server = start_server()
    core = client.CoreV1Api(server.api_client())
    core.list_node()
    core.list_node()
    assert server.request("/_sandbox/requests")[1] == {"requests": {"GET nodes": 2}, "watches": 0}


def test_paths_and_methods_that_are_not_served(api_server: Any) -> None:
    assert api_server.request("/api/v1/unicorns")[0] == 404
    assert api_server.request("/apis/nope.example.com/v1/things")[0] == 404
    assert api_server.request("/api/v1/pods/name-without-namespace")[0] == 404
    assert api_server.request("/api/v1/nodes", method="PUT", body={})[0] == 405
    status, body, _ = api_server.request("/api/v1/nodes", method="POST", body=[1])
    assert (status, body["kind"]) == (400, "Status")
