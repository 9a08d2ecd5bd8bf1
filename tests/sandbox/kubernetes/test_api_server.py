"""The API server as a process, through the official clients and plain HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes_asyncio
import pytest
from kubernetes import client, watch

pytestmark = pytest.mark.sandbox

Make = Callable[..., dict[str, Any]]
NAMESPACE = "default"


@pytest.fixture(scope="module")
def core(api_server: Any) -> client.CoreV1Api:
    return client.CoreV1Api(api_server.api_client())


@pytest.fixture(scope="module")
def custom(api_server: Any) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api_server.api_client())


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    """A namespace of the test's own."""
    created = core.create_namespace({"metadata": {"generateName": "test-"}})
    yield created.metadata.name
    core.delete_namespace(created.metadata.name)


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def raw(server: Any, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """(status, decoded body, headers) of one plain request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.address + path, data, method=method, headers={
        "Content-Type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}
    })
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read()), response.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def ask_fault(server: Any, **asked: Any) -> Any:
    return raw(server, "/_sandbox/faults", method="POST", body=asked)[1]


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
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
        "message": 'pods "a" not found', "details": {"name": "a", "kind": "pods"},
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


def test_pages_of_a_list_show_one_moment(core: client.CoreV1Api, namespace: str) -> None:
    for index in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{index}"))
    first = core.list_namespaced_config_map(namespace, limit=2)
    assert first.metadata.remaining_item_count == 3
    core.delete_namespaced_config_map("c3", namespace)
    core.create_namespaced_config_map(namespace, config_map("c9"))

    names, page = [item.metadata.name for item in first.items], first
    while page.metadata._continue:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=page.metadata._continue)
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [item.metadata.name for item in page.items]
    assert names == ["c0", "c1", "c2", "c3", "c4"]


def test_compaction_makes_old_versions_and_pages_410(start_server: Any) -> None:
    server = start_server()
    own = client.CoreV1Api(server.api_client())
    for index in range(3):
        own.create_namespaced_config_map(NAMESPACE, config_map(f"c{index}"))
    page = own.list_namespaced_config_map(NAMESPACE, limit=1)
    own.create_namespaced_config_map(NAMESPACE, config_map("later"))
    ask_fault(server, compact=True)

    with pytest.raises(client.ApiException) as gone:
        own.list_namespaced_config_map(NAMESPACE, limit=1, _continue=page.metadata._continue)
    assert gone.value.status == 410
    with pytest.raises(client.ApiException) as too_old:
        version = page.metadata.resource_version
        for _ in watch.Watch().stream(
            own.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=5
        ):
            pass
    assert too_old.value.status == 410
    assert "too old resource version" in str(too_old.value.reason)


def test_a_version_from_the_future_is_refused(api_server: Any) -> None:
    status, body, _ = raw(api_server, "/api/v1/namespaces?watch=1&resourceVersion=99999999")
    assert status == 504
    assert "Too large resource version" in body["message"]


def test_a_watch_goes_on_from_a_version_and_sees_selection_change(core: client.CoreV1Api, namespace: str) -> None:
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("in", app="x"))
    core.create_namespaced_config_map(namespace, config_map("out", app="y"))
    core.patch_namespaced_config_map("out", namespace, {"metadata": {"labels": {"app": "x"}}})
    core.patch_namespaced_config_map("in", namespace, {"metadata": {"labels": {"app": "y"}}})
    core.delete_namespaced_config_map("out", namespace)

    events = [
        (event["type"], event["object"].metadata.name)
        for event in watch.Watch().stream(
            core.list_namespaced_config_map, namespace,
            label_selector="app=x", resource_version=version, timeout_seconds=1,
        )
    ]
    assert events == [("ADDED", "in"), ("ADDED", "out"), ("DELETED", "in"), ("DELETED", "out")]


async def read_events(session: aiohttp.ClientSession, url: str, count: int) -> list[dict[str, Any]]:
    async with session.get(url) as response:
        assert response.status == 200, await response.text()
        return [json.loads(await response.content.readline()) for _ in range(count)]


async def test_a_watch_ends_in_time_with_a_bookmark_and_can_begin_with_the_present_state(
    api_server: Any, core: client.CoreV1Api, namespace: str
) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    base = f"{api_server.address}/api/v1/namespaces/{namespace}/configmaps?watch=true"
    async with aiohttp.ClientSession() as session, asyncio.timeout(10):
        initial = await read_events(
            session, base + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 2
        )
        assert [event["type"] for event in initial] == ["ADDED", "BOOKMARK"]
        assert initial[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

        version = initial[1]["object"]["metadata"]["resourceVersion"]
        short = f"&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=1"
        async with session.get(base + short) as response:
            lines = (await response.read()).splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["BOOKMARK"]


async def test_dropped_watches_end_plainly_or_with_an_error_event(start_server: Any) -> None:
    server = start_server()
    url = f"{server.address}/api/v1/pods?watch=true&resourceVersion=1"
    async with aiohttp.ClientSession() as session, asyncio.timeout(10):
        for asked, expected in ((True, []), ("expired", [("ERROR", 410)])):
            async with session.get(url) as response:
                async with session.post(f"{server.address}/_sandbox/faults", json={"drop_watches": asked}) as answer:
                    assert (await answer.json()) == {"dropped": 1}
                events = [json.loads(line) for line in (await response.read()).splitlines()]
            assert [(event["type"], event["object"]["code"]) for event in events] == expected


async def test_an_event_reaches_a_thousand_watchers_at_once(start_server: Any) -> None:
    server = start_server()
    url = f"{server.address}/api/v1/namespaces/default/configmaps"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(60):
        watches = await asyncio.gather(
            *(session.get(url, params={"watch": "true", "resourceVersion": "1"}) for _ in range(1000))
        )
        began = time.monotonic()
        async with session.post(url, json=config_map("event")) as response:
            assert response.status == 201
        answered = time.monotonic() - began
        lines = await asyncio.gather(*(response.content.readline() for response in watches))
        spread = time.monotonic() - began
        for response in watches:
            response.close()
    assert {json.loads(line)["object"]["metadata"]["name"] for line in lines} == {"event"}
    # A loaded machine of two cores, which also runs the thousand readers: generous, yet far from a poll.
    assert answered < 1.0 and spread < 3.0, (answered, spread)


async def test_an_event_reaches_the_asyncio_client_within_milliseconds(api_server: Any) -> None:
    configuration = kubernetes_asyncio.client.Configuration()
    configuration.host = api_server.address
    async with kubernetes_asyncio.client.ApiClient(configuration) as api_client:
        core = kubernetes_asyncio.client.CoreV1Api(api_client)
        listed = await core.list_namespaced_config_map(NAMESPACE)
        arrived: dict[str, float] = {}

        async def follow() -> None:
            stream = kubernetes_asyncio.watch.Watch().stream(
                core.list_namespaced_config_map, NAMESPACE, resource_version=listed.metadata.resource_version
            )
            async for event in stream:
                arrived[event["object"].metadata.name] = time.monotonic()
                if len(arrived) == 20:
                    return

        following = asyncio.create_task(follow())
        sent: dict[str, float] = {}
        for index in range(20):
            name = f"latency-{index}"
            sent[name] = time.monotonic()
            await core.create_namespaced_config_map(NAMESPACE, config_map(name))
        await asyncio.wait_for(following, 10)
    delays = sorted(arrived[name] - sent[name] for name in sent)
    assert delays[10] < 0.1, delays


def test_faults_refuse_delay_and_count_down(api_server: Any) -> None:
    ask_fault(api_server, match="GET /api/v1/nodes", status=429, times=2, retryAfter=3)
    for _ in range(2):
        status, body, headers = raw(api_server, "/api/v1/nodes")
        assert (status, body["reason"], headers["Retry-After"]) == (429, "TooManyRequests", "3")
    assert raw(api_server, "/api/v1/nodes")[0] == 200

    ask_fault(api_server, match="GET /api/v1/nodes", delay_ms=300)
    began = time.monotonic()
    assert raw(api_server, "/api/v1/nodes")[0] == 200
    assert time.monotonic() - began >= 0.3

    ask_fault(api_server, match="GET /api/v1/nodes", reset=True)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        raw(api_server, "/api/v1/nodes")

    assert raw(api_server, "/_sandbox/faults", method="POST", body={"match": "("})[0] == 400


def test_without_the_token_a_server_that_requires_it_answers_401(start_server: Any) -> None:
    server = start_server("--require-token")
    status, body, _ = raw(server, "/api/v1/nodes")
    assert (status, body["reason"]) == (401, "Unauthorized")
    assert raw(server, "/api/v1/nodes", Authorization="Bearer wrong")[0] == 401
    assert raw(server, "/api/v1/nodes", Authorization=f"Bearer {server.token}")[0] == 200
    assert client.CoreV1Api(server.api_client()).list_node().items == []


def test_a_killed_server_comes_back_at_its_address_with_all_objects(start_server: Any, tmp_path: Path) -> None:
    server = start_server()
    core = client.CoreV1Api(server.api_client())
    written = [core.create_namespaced_config_map(NAMESPACE, config_map(f"c{index}")) for index in range(50)]
    address = server.address
    server.kill()
    server.start()
    assert server.address == address
    listed = client.CoreV1Api(server.api_client()).list_namespaced_config_map(NAMESPACE)
    assert {(item.metadata.name, item.metadata.uid) for item in listed.items} == {
        (item.metadata.name, item.metadata.uid) for item in written
    }


async def test_stopping_does_not_wait_for_open_watches(start_server: Any) -> None:
    server = start_server()
    url = f"{server.address}/api/v1/pods?watch=true"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        took = await asyncio.to_thread(server.stop)
    assert took < 2.0


def test_strict_validation_names_every_unknown_field(
    api_server: Any, make_pod: Make, make_jobset: Make
) -> None:
    pod = make_pod("strict", restartPolice="Never")
    pod["spec"]["containers"][0]["commands"] = []
    status, body, _ = raw(api_server, "/api/v1/namespaces/default/pods?fieldValidation=Strict", method="POST", body=pod)
    assert status == 400
    assert body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].commands", unknown field "spec.restartPolice"'
    )
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?fieldValidation=Strict"
    jobset = make_jobset("strict", failurePolicy={"maxRestart": 1})
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["backOffLimit"] = 1
    status, body, _ = raw(api_server, path, method="POST", body=jobset)
    assert 'unknown field "spec.failurePolicy.maxRestart"' in body["message"]
    assert 'unknown field "spec.replicatedJobs[0].template.spec.backOffLimit"' in body["message"]
    assert raw(api_server, path, method="POST", body=make_jobset("strict"))[0] == 201


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


@pytest.fixture
def logging_pod(api_server: Any, core: client.CoreV1Api, namespace: str, make_pod: Make) -> tuple[str, Path]:
    """A pod that runs on a node, and the file that its container's log is in."""
    pod = core.create_namespaced_pod(namespace, make_pod("logging", nodeName="node-1"))
    path = api_server.directory / "nodes" / "node-1" / "pods" / pod.metadata.uid / "logs" / "main.log"
    path.parent.mkdir(parents=True)
    return namespace, path


def set_state(core: client.CoreV1Api, namespace: str, phase: str, state: dict[str, Any]) -> None:
    status = {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": "", "state": state}
    core.patch_namespaced_pod_status(
        "logging", namespace, {"status": {"phase": phase, "containerStatuses": [status]}}
    )


def test_logs_are_cut_by_lines_time_and_bytes(core: client.CoreV1Api, logging_pod: tuple[str, Path]) -> None:
    namespace, path = logging_pod
    with pytest.raises(client.ApiException) as waiting:
        core.read_namespaced_pod_log("logging", namespace)
    assert 'container "main" in pod "logging" is waiting to start' in json.loads(waiting.value.body)["message"]

    path.write_text(
        "2026-01-01T00:00:01.000000001Z stdout F one\n"
        "2026-01-01T00:00:02.5Z stderr P tw\n2026-01-01T00:00:02.6Z stderr F o\n"
        "2026-01-01T00:00:03Z stdout F three \n2026-01-01T00:00:04Z stdout F \n"
    )

    def read(**options: Any) -> str:
        # Preloaded, this client gives the text of a bytes literal.
        response = core.read_namespaced_pod_log("logging", namespace, _preload_content=False, **options)
        return str(response.data, "utf-8")

    assert read() == "one\ntwo\nthree \n\n"
    assert read(tail_lines=2) == "three \n\n"
    assert read(tail_lines=0) == ""
    assert read(limit_bytes=5) == "one\nt"
    assert read(since_seconds=10) == ""
    assert read(timestamps=True, tail_lines=2).splitlines()[0] == "2026-01-01T00:00:03Z three "
    with pytest.raises(client.ApiException) as unknown:
        read(container="other")
    assert "container other is not valid for pod logging" in unknown.value.body


def test_a_followed_log_goes_on_until_the_container_ends(
    core: client.CoreV1Api, api_server: Any, logging_pod: tuple[str, Path]
) -> None:
    namespace, path = logging_pod
    set_state(core, namespace, "Running", {"running": {}})
    followed: list[str] = []
    own = client.CoreV1Api(api_server.api_client())

    def follow() -> None:
        followed.extend(watch.Watch().stream(own.read_namespaced_pod_log, "logging", namespace))

    path.write_text("2026-01-01T00:00:01Z stdout F one\n")
    thread = threading.Thread(target=follow)
    thread.start()
    deadline = time.monotonic() + 5
    while followed != ["one"]:
        assert time.monotonic() < deadline, followed
        time.sleep(0.02)
    with path.open("a") as file:
        file.write("2026-01-01T00:00:02Z stdout F two\n")
    set_state(core, namespace, "Succeeded", {"terminated": {"exitCode": 0}})
    thread.join(5)
    assert not thread.is_alive() and followed == ["one", "two"]


def test_server_side_apply_and_dry_run(api_server: Any, core: client.CoreV1Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/a?fieldManager=me"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    content_type = {"Content_Type": "application/apply-patch+yaml"}
    assert raw(api_server, path + "&dryRun=All", method="PATCH", body=body, **content_type)[0] == 201
    assert core.list_namespaced_config_map(namespace).items == []

    assert raw(api_server, path, method="PATCH", body=body, **content_type)[0] == 201
    status, again, _ = raw(api_server, path, method="PATCH", body=body, **content_type)
    assert status == 200
    written = core.read_namespaced_config_map("a", namespace)
    assert again["metadata"]["resourceVersion"] == written.metadata.resource_version


def test_requests_are_counted_by_kind(start_server: Any) -> None:
    server = start_server()
    core = client.CoreV1Api(server.api_client())
    core.list_node()
    core.list_node()
    assert raw(server, "/_sandbox/requests")[1] == {"requests": {"GET nodes": 2}, "watches": 0}


def test_paths_and_methods_that_are_not_served(api_server: Any) -> None:
    assert raw(api_server, "/api/v1/unicorns")[0] == 404
    assert raw(api_server, "/apis/nope.example.com/v1/things")[0] == 404
    assert raw(api_server, "/api/v1/pods/name-without-namespace")[0] == 404
    assert raw(api_server, "/api/v1/nodes", method="PUT", body={})[0] == 405
    status, body, _ = raw(api_server, "/api/v1/nodes", method="POST", body=[1])
    assert (status, body["kind"]) == (400, "Status")
