"""The real control plane as a part of the sandbox: ready when it says so, restartable, gone when it is told to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from everstep_sandbox.controlplane import programs
from everstep_sandbox.controlplane.credentials import Credentials

JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")


class Plane:
    """The module as users of the sandbox start it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        port_file = self.directory / "kubernetes.port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "everstep_sandbox.controlplane", "--directory", str(self.directory)]
        with (self.directory / "plane.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--port-file", str(port_file)], stdout=log, stderr=log)
        while not port_file.exists():
            assert self.process.poll() is None, (self.directory / "plane.log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(30) == 0, (self.directory / "plane.log").read_text()
        assert self.programs() == {}

    def programs(self) -> dict[str, int]:
        """Processes that were started in this directory, by program."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes().decode().split("\0")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if any(f"{self.directory}/controlplane/" in argument for argument in command):
                    found[Path(command[0]).name] = int(entry.name)
        return found

    def api(self, user: str | None = None) -> Any:
        own = Credentials.of(self.directory)
        return config.new_client_from_config(str(own.kubeconfig(user) if user else self.directory / "kubeconfig"))


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(str(missing))
    made = Plane(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def jobset(name: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    job = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 2, "template": job}]},
    }


@pytest.mark.controlplane
def test_it_takes_a_jobset_when_it_says_that_it_is_ready_and_keeps_it_over_a_restart(plane: Plane) -> None:
    version = client.VersionApi(plane.api()).get_code()
    assert version.git_version.startswith("v1.36.")
    made = client.CustomObjectsApi(plane.api()).create_namespaced_custom_object(*JOBSETS, jobset("kept"))
    # Set by the webhook of the JobSet controller.
    assert made["spec"]["network"]["enableDNSHostnames"] is True
    jobs = client.BatchV1Api(plane.api())
    deadline = time.monotonic() + 30
    while len(jobs.list_namespaced_job("default").items) < 2:
        assert time.monotonic() < deadline, (plane.directory / "logs" / "jobset-controller.log").read_text()[-2000:]
        time.sleep(0.05)

    before = (plane.directory / "kubeconfig").read_text()
    plane.stop()
    plane.start()
    assert (plane.directory / "kubeconfig").read_text() == before
    kept = client.CustomObjectsApi(plane.api()).get_namespaced_custom_object(*JOBSETS, "kept")
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]

    with pytest.raises(ApiException) as refused:
        client.CustomObjectsApi(plane.api("nobody")).get_namespaced_custom_object(*JOBSETS, "kept")
    assert refused.value.status == 403
    assert json.loads(refused.value.body)["kind"] == "Status"


@pytest.mark.controlplane
def test_a_killed_program_ends_it_and_a_killed_one_leaves_no_program(plane: Plane) -> None:
    assert plane.process is not None
    running = plane.programs()
    assert set(running) == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "jobset-controller",
    }
    os.kill(running["kube-scheduler"], signal.SIGKILL)
    assert plane.process.wait(30) == 1
    assert "kube-scheduler ended with exit code -9" in (plane.directory / "plane.log").read_text()
    assert plane.programs() == {}

    plane.start()
    plane.process.kill()
    plane.process.wait()
    deadline = time.monotonic() + 30
    while plane.programs():
        assert time.monotonic() < deadline, plane.programs()
        time.sleep(0.05)


def test_missing_programs_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programs.DIRECTORY_VARIABLE, str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "etcd").touch(mode=0o755)
    with pytest.raises(programs.ProgramsMissing) as missing:
        programs.find()
    assert str(tmp_path) in str(missing.value)
    assert "kube-apiserver, kube-controller-manager" in str(missing.value)
    assert "etcd," not in str(missing.value)
    assert "make controlplane" in str(missing.value)
