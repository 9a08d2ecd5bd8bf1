"""`everstep sandbox up`, `status`, `fault` and `down` as people use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_sandbox.stack import parts, record, sweep

pytestmark = pytest.mark.sandbox


class CommandLine:
    """Runs the command on one state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, expect: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "everstep_sandbox", "sandbox", *words],
            capture_output=True,
            text=True,
            timeout=90,
            env={**os.environ, "EVERSTEP_SANDBOX_DIR": str(self.directory)},
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def pid(self, part: str) -> int:
        found = record.read(self.directory)
        assert found is not None
        return found.pids[part]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path / "state")
    yield command
    command("down")
    assert sweep.survivors(command.directory) == []


def test_life_of_a_sandbox(sandbox: CommandLine) -> None:
    told = sandbox("up", "--slices=2", "--hosts=1")
    assert "2 nodes Ready: v6e-2x4-0, v6e-2x4-1" in told and "checkpoint drivers Ready" in told
    written = json.loads((sandbox.directory / "sandbox.json").read_text())
    assert set(written["pids"]) == {"supervisor", "storage", "google", "control-plane", "kubelet", "checkpointing"}
    assert Path(written["kubeconfig"]).exists() and written["speed"] == 10
    assert "is up already" in sandbox("up", "--slices=2", "--hosts=1")
    assert "asked for were 3 slices of 2 hosts" in sandbox("up", expect=1)
    found = json.loads(sandbox("status", "--json"))
    assert set(found["parts"].values()) == {"running"}
    assert [machine["state"] for machine in found["machines"]] == ["running", "running"]

    # Whatever is killed comes back at the same addresses.
    for part in ("storage", "kubelet"):
        os.kill(sandbox.pid(part), signal.SIGKILL)
    assert "starting what has ended: storage, kubelet" in sandbox("up", "--slices=2", "--hosts=1")
    again = json.loads((sandbox.directory / "sandbox.json").read_text())
    assert (again["kubernetes"], again["storage"]) == (written["kubernetes"], written["storage"])
    assert again["pids"]["control-plane"] == written["pids"]["control-plane"]

    wiped = json.loads(sandbox("fault", "wipe-ram", "--all"))
    assert len(wiped["wiped"]) == 2 and wiped["killed"] == 2
    assert "expected NAMESPACE/POD" in sandbox("fault", "kill-pod", "lonely", expect=1)
    gone = json.loads(sandbox("fault", "node-gone", "gke-sandbox-v6e-2x4-0-0", "--repair-after", "3000"))
    assert gone["gone"] == ["gke-sandbox-v6e-2x4-0-0"] and gone["repair_in"] == pytest.approx(300, abs=1)
    assert "gke-sandbox-v6e-2x4-0-0 v6e-2x4-0 gone, back in" in " ".join(sandbox("status").split())
    refused = sandbox("fault", "node-gone", "gke-sandbox-v6e-2x4-0-0", expect=1)
    assert "is gone already" in refused and "{" not in refused

    assert "is down" in sandbox("down")
    assert sweep.survivors(sandbox.directory) == []
    assert "was not running" in sandbox("down")
    assert "No sandbox runs" in sandbox("status", expect=1)
    assert "is down" not in sandbox("down", "--delete") and not sandbox.directory.exists()


def test_killed_supervisor_takes_everything_along(sandbox: CommandLine) -> None:
    sandbox("up", "--slices=1", "--hosts=1")
    pids = json.loads((sandbox.directory / "sandbox.json").read_text())["pids"]
    os.kill(pids["supervisor"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids.values()):
        assert time.monotonic() < deadline, sweep.survivors(sandbox.directory)
    # The record is stale now: the next `up` sees that and starts anew, with all objects as they were.
    assert "ready" in sandbox("up", "--slices=1", "--hosts=1")


def test_part_that_can_not_start_is_told_with_its_log(sandbox: CommandLine) -> None:
    sandbox.directory.mkdir()
    (sandbox.directory / "storage").write_text("in the way")
    told = sandbox("up", "--slices=1", "--hosts=1", expect=1)
    assert "storage ended with exit code" in told
    assert sweep.survivors(sandbox.directory) == []


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf"])
def test_speed_that_is_none_is_refused_before_anything_starts(sandbox: CommandLine, speed: str) -> None:
    assert f"Speed {speed}: expected a number above 0" in sandbox("up", f"--speed={speed}", expect=1)
    assert not sandbox.directory.exists()


def test_directory_that_can_not_be_is_named(sandbox: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = sandbox("up", f"--directory={tmp_path}/file/state", expect=1)
    assert f"A sandbox can't be kept in {tmp_path}/file/state" in told and "Traceback" not in told


def test_an_empty_project_on_the_real_control_plane_is_refused_with_the_reason(tmp_path: Path) -> None:
    told = CommandLine(tmp_path / "sandbox")("up", "--empty", "--controlplane=real", expect=1)
    assert "leave --controlplane real out" in told and "there would be none to install" in told
    assert not (tmp_path / "sandbox" / "logs").exists(), "nothing was started"


def test_real_control_plane_that_is_not_built_is_refused_before_anything_starts(
    sandbox: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_CONTROLPLANE", str(tmp_path / "none"))
    told = sandbox("up", "--controlplane=real", expect=1)
    assert f"No real control plane in {tmp_path}/none, which EVERSTEP_CONTROLPLANE names" in told
    assert "starting" not in told and not (sandbox.directory / "logs").exists()


def test_part_whose_parent_has_ended_before_it_is_asked_for_its_end_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.os, "getpid", lambda: -1)
    orphan = parts.start_program(tmp_path, "orphan", "sleep", "600")
    monkeypatch.undo()
    try:
        assert orphan.process.wait(60) == 1
    finally:
        orphan.process.kill()
        orphan.process.wait()


_DEMO = """
import sys
from pathlib import Path
from everstep_sandbox.demo import __main__ as demo

demo.DEMO = Path(sys.argv.pop())
sys.exit(demo.main())
"""


def test_demo_says_in_a_sentence_why_its_stack_did_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DEMO, "run", "--controlplane", "real", str(tmp_path / "demo")]
    variables = {**os.environ, "EVERSTEP_CONTROLPLANE": str(tmp_path / "none")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"No real control plane in {tmp_path}/none" in done.stderr
    assert "Traceback" not in done.stderr
