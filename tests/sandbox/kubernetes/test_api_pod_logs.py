"""Logs of pods: cut, and followed to the end of the container."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, watch

pytestmark = pytest.mark.sandbox

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def logging_pod(api_server: Any, core: client.CoreV1Api, namespace: str, make_pod: Make) -> tuple[str, Path]:
    """A pod that runs on a node, and the file that its container's log is in."""
    pod = core.create_namespaced_pod(namespace, make_pod("logging", nodeName="node-1"))
    path = api_server.directory / "nodes" / "node-1" / "pods" / pod.metadata.uid / "logs" / "main.log"
    path.parent.mkdir(parents=True)
    return namespace, path


def set_state(core: client.CoreV1Api, namespace: str, phase: str, state: dict[str, Any]) -> None:
    status = {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": "", "state": state}
    core.patch_namespaced_pod_status("logging", namespace, {"status": {"phase": phase, "containerStatuses": [status]}})


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
