"""The real control plane as a part of the sandbox: ready when it says so, restartable, gone when it is told to end."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from everstep_sandbox.controlplane import credentials, programs
from everstep_sandbox.controlplane.credentials import Credentials
from everstep_sandbox.controlplane.plane import ControlPlane
from everstep_sandbox.stack.parts import PartError

JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")


class Plane:
    """The module as users of the sandbox start it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> subprocess.Popen[bytes]:
        """Starts it without waiting."""
        port_file = self.directory / "kubernetes.port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "everstep_sandbox.controlplane", "--directory", str(self.directory)]
        with (self.directory / "plane.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--port-file", str(port_file)], stdout=log, stderr=log)
        return self.process

    def start(self) -> None:
        process, port_file = self.begin(), self.directory / "kubernetes.port"
        while not port_file.exists():
            assert process.poll() is None, (self.directory / "plane.log").read_text()
            time.sleep(0.05)

    def wait_for_programs(self, *names: str) -> None:
        """Waits until these run; without names until none does."""
        deadline = time.monotonic() + 60
        while not set(names) <= set(self.programs()) if names else self.programs():
            assert time.monotonic() < deadline, (self.directory / "plane.log").read_text()
            time.sleep(0.02)

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
    plane.wait_for_programs()


@pytest.mark.controlplane
def test_its_end_during_a_start_leaves_no_program(plane: Plane) -> None:
    plane.stop()
    for signal_, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        process = plane.begin()
        plane.wait_for_programs("etcd", "kube-apiserver")
        process.send_signal(signal_)
        assert process.wait(60) == code
        plane.wait_for_programs()
    plane.start()


@pytest.mark.controlplane
def test_it_goes_on_with_other_ports_and_certificates(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    client.CustomObjectsApi(plane.api()).create_namespaced_custom_object(*JOBSETS, jobset("before"))
    plane.stop()
    own = Credentials.of(plane.directory)
    own.certificate.unlink()
    monkeypatch.setattr(credentials, "_DAYS_VALID", 10)
    own.ensure()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", json.loads((plane.directory / "controlplane" / "ports.json").read_text())["webhooks"]))
        taken.listen()
        plane.start()
    jobsets = client.CustomObjectsApi(plane.api())
    assert jobsets.get_namespaced_custom_object(*JOBSETS, "before")
    # The webhooks are asked at their new address, whose certificate is by the new authority.
    made = jobsets.create_namespaced_custom_object(*JOBSETS, jobset("after"))
    assert made["spec"]["network"]["enableDNSHostnames"] is True
    assert days_left(own.certificate) > 300


_STOLEN = """
import socket, sys
from pathlib import Path
from everstep_sandbox.controlplane import programs
from everstep_sandbox.controlplane.plane import ControlPlane

plane = ControlPlane(Path(sys.argv[1]), programs.find())
chosen = plane.settings.ports["etcd"]
with socket.socket() as taken:
    taken.bind(("127.0.0.1", chosen))
    taken.listen()
    plane.start()
print(plane.settings.ports["etcd"] != chosen, plane.kubeconfig.exists())
plane.close()
"""


@pytest.mark.controlplane
def test_a_port_that_is_taken_before_its_program_has_it_is_replaced(plane: Plane) -> None:
    plane.stop()
    command = [sys.executable, "-c", _STOLEN, str(plane.directory)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True True\n"


@pytest.mark.controlplane
def test_a_second_one_in_its_directory_is_refused_and_changes_nothing(plane: Plane) -> None:
    known = (plane.directory / "kubeconfig").read_text(), (plane.directory / "controlplane/ports.json").read_text()
    command = [sys.executable, "-m", "everstep_sandbox.controlplane", "--directory", str(plane.directory)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"A control plane runs in {plane.directory} already" in second.stderr
    assert known == (
        (plane.directory / "kubeconfig").read_text(),
        (plane.directory / "controlplane/ports.json").read_text(),
    )
    assert client.VersionApi(plane.api()).get_code()


def test_a_full_disk_is_told_before_etcd_meets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    full = ControlPlane(tmp_path, programs.Programs(tmp_path))
    try:
        with pytest.raises(PartError, match=f"{tmp_path}/controlplane: 100 MB are free, expected 256"):
            full.start()
    finally:
        full.close()


def days_left(certificate: Path) -> int:
    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return (end - datetime.datetime.now(datetime.UTC)).days


def test_certificates_are_kept_until_shortly_before_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Credentials.of(tmp_path)
    own.ensure()
    made = own.certificate.read_bytes()
    own.ensure()
    assert own.certificate.read_bytes() == made
    tokens = own.tokens.read_bytes()
    own.certificate.unlink()
    with monkeypatch.context() as short:
        short.setattr(credentials, "_DAYS_VALID", 29)
        own.ensure()
    assert days_left(own.certificate) == 28
    own.ensure()
    assert days_left(own.certificate) == 364
    assert own.tokens.read_bytes() == tokens


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
    assert f"{tmp_path}, which {programs.DIRECTORY_VARIABLE} names" in str(missing.value)
