"""A real API server process per module, and what tests need to talk to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from everstep_sandbox.kubernetes.admission import register
from everstep_sandbox.kubernetes.bootstrap import create_initial_objects
from everstep_sandbox.kubernetes.store import Store


class ServerProcess:
    """`python -m everstep_sandbox.kubernetes --api-only` on a directory of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "everstep_sandbox.kubernetes",
                "--directory",
                str(self.directory),
                "--api-only",
                *self._arguments,
            ],
        )
        deadline = time.monotonic() + 20
        while not self.kubeconfig.exists():
            assert self._process.poll() is None, f"the server ended with {self._process.returncode}"
            assert time.monotonic() < deadline, "the server was not ready within 20 s"
            time.sleep(0.02)

    def stop(self) -> float:
        """Ends the server by SIGTERM and returns how long that took, in seconds."""
        assert self._process is not None
        began = time.monotonic()
        self._process.terminate()
        assert self._process.wait(timeout=10) == 0
        return time.monotonic() - began

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        content = yaml.safe_load(self.kubeconfig.read_text())
        return str(content["clusters"][0]["cluster"]["server"])

    @property
    def token(self) -> str:
        return str(yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]["token"])

    def request(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """(status, decoded body, headers) of one plain request; `_` in a header's name stands for `-`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path,
            data,
            method=method,
            headers={
                "Content-Type": "application/json",
                **{key.replace("_", "-"): value for key, value in headers.items()},
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.loads(response.read()), response.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), error.headers

    def ask_fault(self, **asked: Any) -> Any:
        return self.request("/_sandbox/faults", method="POST", body=asked)[1]

    def api_client(self) -> client.ApiClient:
        return config.new_client_from_config(str(self.kubeconfig))


StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers that end with the test."""
    started: list[ServerProcess] = []

    def start(*arguments: str, directory: Path | None = None) -> ServerProcess:
        server = ServerProcess(directory or tmp_path / f"sandbox-{len(started)}", *arguments)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        if server.is_running:
            server.stop()


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tests of a module."""
    server = ServerProcess(tmp_path_factory.mktemp("api"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a cluster's initial objects and admission, in this process."""
    opened = Store(tmp_path)
    register(opened)
    create_initial_objects(opened)
    yield opened
    opened.close()


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "100"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def make_pod() -> Callable[..., dict[str, Any]]:
    """Builds a valid pod; keyword arguments go to its spec."""
    return pod


def jobset(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "python"}], "restartPolicy": "Never"}}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template}
    replicated = {"name": "slice", "replicas": 2, "template": {"spec": job}}
    return {"metadata": {"name": name}, "spec": {"replicatedJobs": [replicated], **spec}}


@pytest.fixture
def make_jobset() -> Callable[..., dict[str, Any]]:
    """Builds a valid JobSet of 2 slices x 2 nodes; keyword arguments go to its spec."""
    return jobset


@pytest.fixture(scope="module")
def core(api_server: ServerProcess) -> client.CoreV1Api:
    return client.CoreV1Api(api_server.api_client())


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    """A namespace of the test's own on the module's server."""
    created = core.create_namespace({"metadata": {"generateName": "test-"}})
    yield created.metadata.name
    core.delete_namespace(created.metadata.name)


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


@pytest.fixture
def make_config_map() -> Callable[..., dict[str, Any]]:
    """Builds a ConfigMap without data; keyword arguments are labels."""
    return config_map
