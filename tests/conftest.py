"""Real servers for tests: the sandbox's Kubernetes API and Cloud Storage, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everstep_sandbox.controlplane import programs

START_SECONDS = 120.0


def pytest_configure() -> None:
    # Ends as Ctrl-C does, so that fixtures stop what they started; by itself pytest would just die.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background jobs ignore Ctrl-C, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Server:
    """A server process: its address, its directory, and faults on request."""

    address: str
    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def fault(self, **rule: Any) -> None:
        """Ask for a fault: match, status, times, retryAfter, reset, …"""
        self.post("/_sandbox/faults", rule)

    def clear_faults(self) -> None:
        """End all faults that were asked for."""
        request = urllib.request.Request(f"{self.address}/_sandbox/faults", method="DELETE")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else {}


@contextmanager
def server(module: str, directory: Path, *arguments: str) -> Iterator[Server]:
    """Run a server module until the end of the block; nothing of it is left afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    port_file = directory / "port.txt"
    with (directory / "server.log").open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                module,
                "--directory",
                directory,
                "--port-file",
                port_file,
                *arguments,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module} did not start:\n{(directory / 'server.log').read_text()}")
            time.sleep(0.02)
        yield Server(f"http://127.0.0.1:{port_file.read_text().strip()}", directory, process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


@pytest.fixture(scope="session")
def bare_kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API alone, without controllers: what a test writes stays as it wrote it."""
    with server("everstep_sandbox.kubernetes", tmp_path_factory.mktemp("kubernetes"), "--api-only") as running:
        yield running


@pytest.fixture
def real_control_plane(tmp_path: Path) -> Iterator[Path]:
    """The directory of a real control plane of the test's own, with its kubeconfig; skips where none is built."""
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(str(missing))
    with server("everstep_sandbox.controlplane", tmp_path / "plane", "--speed", "10"):
        yield tmp_path / "plane"


@pytest.fixture(scope="session")
def cloud_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Cloud Storage, empty at first."""
    with server("everstep_sandbox.storage", tmp_path_factory.mktemp("storage")) as running:
        yield running


CLUSTER = {
    "name": "sandbox",
    "project": "everstep-sandbox",
    "location": "us-east5-a",
    "kubernetes_connection": "everstep_sandbox",
    "pools": {
        "v6e-2x4": {
            "accelerator": "tpu-v6e-slice",
            "topology": "2x4",
            "machine_type": "ct6e-standard-4t",
            "chips_per_node": 4,
            "nodes_per_slice": 2,
            "slices": 3,
        }
    },
    "checkpoint_configurations": {
        "everstep": {"bucket": "everstep-tests", "machine_type": "ct6e-standard-4t", "in_memory_volume_size": "256Mi"}
    },
    "priorities": {"training-high": 2000000, "training-low": 1000000},
}
RUN = {
    "name": "lm",
    "cluster": "sandbox",
    "slices": {"pool": "v6e-2x4", "count": 2, "spare": "preempt"},
    "priority": "training-high",
    "checkpoints": {"local": {"every_steps": 5}, "size": "8MiB"},
    "trainer": {"image": "python:3.11", "command": ["python", "train.py"]},
    "final_step": 100,
}


@pytest.fixture
def run_data() -> dict[str, Any]:
    """A run file as data, to be changed at will."""
    return json.loads(json.dumps(RUN))  # type: ignore[no-any-return]


@pytest.fixture
def cluster_data() -> dict[str, Any]:
    """A cluster file as data, to be changed at will."""
    return json.loads(json.dumps(CLUSTER))  # type: ignore[no-any-return]


@pytest.fixture
def new_bucket(cloud_storage: Server) -> str:
    """A new hierarchical bucket's name."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    cloud_storage.post(
        "/storage/v1/b?project=everstep",
        {
            "name": name,
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    return name
