"""The sandbox's nodes under the real control plane: real processes, started by the real scheduler and controllers."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch

from everstep_sandbox.controlplane import programs

JOBSETS = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")


def everstep_sandbox(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "everstep.cli.main", "sandbox", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Path]:
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(str(missing))
    try:
        everstep_sandbox("up", f"--directory={tmp_path}", "--slices=1", "--controlplane=real")
        yield tmp_path
    finally:
        everstep_sandbox("down", f"--directory={tmp_path}")
        assert not [command for command in commands() if f"{tmp_path}/" in command]


def commands() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                yield (entry / "cmdline").read_bytes().decode()
            except (FileNotFoundError, ProcessLookupError):
                continue


@pytest.mark.controlplane
def test_a_jobset_of_real_processes_restarts_and_completes(sandbox: Path, sandbox_jobset: Any) -> None:
    assert "real" in everstep_sandbox("status", f"--directory={sandbox}")
    api = config.new_client_from_config(str(sandbox / "kubeconfig"))
    script = 'echo "attempt $ATTEMPT of $HOSTNAME"; [ "$ATTEMPT" != 0 ] || exit 75'
    body = sandbox_jobset("train", script, exclusive=True, tpu="4")
    client.CustomObjectsApi(api).create_namespaced_custom_object(*JOBSETS, body)

    state = wait_for_end(api, "train")
    assert {one["type"] for one in state["conditions"] if one["status"] == "True"} >= {"Completed"}
    # Not counted: the failure policy's rule for exit code 75.
    assert (state["restarts"], state.get("restartsCountTowardsMax", 0)) == (1, 0)
    core = client.CoreV1Api(api)
    pods = core.list_namespaced_pod("default", label_selector="jobset.sigs.k8s.io/jobset-name=train").items
    assert len(pods) == 2
    for pod in pods:
        # Preloaded, this client gives the text of a bytes literal.
        log = core.read_namespaced_pod_log(pod.metadata.name, "default", _preload_content=False)
        assert log.data.startswith(b"attempt 1 of ")
    drivers = client.AppsV1Api(api).list_namespaced_daemon_set("gke-managed-checkpointing").items
    assert [driver.status.number_ready for driver in drivers] == [2]


@pytest.mark.controlplane
def test_nodes_follow_a_control_plane_that_comes_back_at_another_port(sandbox: Path, sandbox_jobset: Any) -> None:
    before = json.loads((sandbox / "sandbox.json").read_text())
    os.kill(before["pids"]["control-plane"], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any("kube-apiserver" in command for command in commands() if f"{sandbox}/" in command):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind_once_free(taken, int(before["kubernetes"].rpartition(":")[2]))
        taken.listen()
        everstep_sandbox("up", f"--directory={sandbox}", "--slices=1", "--controlplane=real")
    after = json.loads((sandbox / "sandbox.json").read_text())
    assert after["kubernetes"] != before["kubernetes"]
    api = config.new_client_from_config(str(sandbox / "kubeconfig"))
    body = sandbox_jobset("train", "echo here", exclusive=True, tpu="4")
    client.CustomObjectsApi(api).create_namespaced_custom_object(*JOBSETS, body)
    wait_for_end(api, "train")


def bind_once_free(taken: socket.socket, port: int) -> None:
    """Binds the port of a killed process: it has no command line any more some time before its sockets are closed."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return taken.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def wait_for_end(api: Any, name: str) -> dict[str, Any]:
    custom = client.CustomObjectsApi(api)
    stream = watch.Watch().stream(
        custom.list_namespaced_custom_object, *JOBSETS, field_selector=f"metadata.name={name}", timeout_seconds=90
    )
    deadline = time.monotonic() + 90
    for event in stream:
        state: dict[str, Any] = event["object"].get("status") or {}
        if state.get("terminalState"):
            return state
        assert time.monotonic() < deadline, state
    raise AssertionError(custom.get_namespaced_custom_object(*JOBSETS, name))
