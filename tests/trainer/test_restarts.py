"""Real training processes on four nodes with real replicators: lose processes and nodes, and go on to the same end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep.checkpoints import names
from everstep.checkpoints.catalogue import Shape, build
from everstep.checkpoints.layout import RunFolder
from everstep_sandbox.checkpointing.testing import StandaloneNodes
from everstep_trainer import history
from everstep_trainer.bucket import Bucket

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]

STEPS = 30
SAVE_EVERY = 5
SLICES = 2
PACKAGE = "everstep_trainer.examples.stdlib_lm"
ON_ONE_MACHINE = {"JAX_PLATFORMS": "cpu", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
START_SECONDS = 150.0


class Training:
    """A run's processes, one per node, attempt after attempt."""

    def __init__(
        self, directory: Path, storage: Any, bucket: str, nodes: StandaloneNodes, nodes_per_slice: int
    ) -> None:
        self.nodes = nodes
        self.nodes_per_slice = nodes_per_slice
        self._directory = directory
        self._storage = storage
        self._bucket = bucket
        self._attempt = -1
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, **changes: str) -> None:
        """Start the next attempt on all nodes."""
        self._attempt += 1
        mounts = self.nodes.launch("lm", slices=SLICES, nodes_per_slice=self.nodes_per_slice, attempt=self._attempt)
        self.processes = []
        for number, mount in enumerate(mounts):
            self.pod_info(number).mkdir(parents=True, exist_ok=True)
            environment = {
                **os.environ,
                **ON_ONE_MACHINE,
                "STORAGE_EMULATOR_HOST": self._storage.address,
                "TENSORSTORE_GCS_HTTP_URL": self._storage.address,
                **compiled_once(self._directory),
                "EVERSTEP_RUN": "lm",
                "EVERSTEP_RUN_URL": f"gs://{self._bucket}/lm",
                "EVERSTEP_LAUNCH": "1",
                "EVERSTEP_RESTART_ATTEMPT": str(self._attempt),
                "EVERSTEP_SLICES": str(SLICES),
                "EVERSTEP_NODES_PER_SLICE": str(self.nodes_per_slice),
                "EVERSTEP_SLICE_INDEX": str(mount.slice_index),
                "EVERSTEP_NODE_INDEX": str(mount.node_index),
                "EVERSTEP_CHECKPOINT_DIR": str(mount.directory),
                "EVERSTEP_LOCAL_EVERY_STEPS": str(SAVE_EVERY),
                "EVERSTEP_BACKUP_EVERY_MINUTES": "0.02",
                "EVERSTEP_FINAL_STEP": str(STEPS),
                "EVERSTEP_POD_INFO": str(self.pod_info(number)),
                "EVERSTEP_HANDSHAKE_SECONDS": "120",
                "EVERSTEP_NODE_NAME": mount.node,
                **changes,
            }
            with self._log(number).open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", f"{PACKAGE}.train", "--print-every=5"],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def wait_until(self, what: str, found: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not found():
            ended = [process.poll() for process in self.processes]
            if time.monotonic() > deadline or any(code is not None for code in ended):
                raise AssertionError(f"waited for {what}; exit codes {ended}\n{self.logs()}")
            time.sleep(0.05)

    def wait_step(self, step: int) -> None:
        self.wait_until(f"step {step}", lambda: f"step {step} loss" in self._log(0).read_text())

    def wait_codes(self, seconds: float) -> list[int]:
        """Exit codes of all processes, which must come within so many seconds."""
        deadline = time.monotonic() + seconds
        try:
            return [process.wait(max(0.01, deadline - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s\n{self.logs()}") from None

    def tiers(self) -> set[tuple[int | None, str]]:
        """(step, tier) of each node's restore in this attempt."""
        path = f"lm/everstep/attempts/0001-{self._attempt:04d}/node-"
        reports = [self.read(f"{path}{rank}.json") for rank in range(len(self.processes))]
        return {(report["restored_step"], report["restored_tier"]) for report in reports}

    def read(self, path: str) -> dict[str, Any]:
        stored = Bucket(self._bucket).read(path)
        assert stored is not None, f"{path}\n{self.logs()}"
        content: dict[str, Any] = json.loads(stored.content)
        return content

    def write(self, path: str, content: dict[str, Any]) -> None:
        Bucket(self._bucket).write(path, json.dumps(content).encode())

    def backed_up(self) -> bool:
        """Whether one of the run's backups is complete."""
        bucket, folder = Bucket(self._bucket), RunFolder(self._bucket, "lm")
        dated = [name for name in bucket.list_level(folder.prefix).folders if names.looks_like_backup(name)]
        listings = [history.read_backup(bucket, folder, name) for name in dated]
        shape = Shape(len(self.processes), data_parallelism=SLICES)
        return bool(build("lm", listings, shape, now=datetime.now(UTC), grace=timedelta()).complete)

    def exists(self, path: str) -> bool:
        return Bucket(self._bucket).exists(path)

    def pod_info(self, number: int) -> Path:
        return self._directory / f"pod-info-{number}"

    def ask_for_save(self, number: int, identifier: str) -> None:
        """Annotate one pod, as the kubelet shows it to the container."""
        aside = self.pod_info(number) / "annotations.new"
        aside.write_text(f'everstep.dev/save-requested="{identifier}"\n')
        os.replace(aside, self.pod_info(number) / "annotations")

    def logs(self) -> str:
        return "\n".join(self._log(number).read_text(errors="replace")[-2000:] for number in range(len(self.processes)))

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _log(self, number: int) -> Path:
        return self._directory / f"attempt-{self._attempt}-{number}.log"


@pytest.fixture
def training(
    request: pytest.FixtureRequest, tmp_path: Path, cloud_storage: Any, new_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Training]:
    """A run of two slices; the test says by ``nodes_per_slice`` how many nodes each of them has."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_storage.address)
    nodes_per_slice: int = request.param
    with StandaloneNodes(
        tmp_path / "nodes", cloud_storage.address, new_bucket, SLICES * nodes_per_slice, pool_size=nodes_per_slice
    ) as nodes:
        started = Training(tmp_path, cloud_storage, new_bucket, nodes, nodes_per_slice)
        yield started
        started.end()


def nodes_per_slice(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("training", [count], indirect=True, ids=[f"{SLICES}x{count}"])


def compiled_once(directory: Path) -> dict[str, str]:
    """Environment that lets all processes of a test share what they compile."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(directory / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def reference(directory: Path, *arguments: str) -> dict[str, Any]:
    """The result of an uninterrupted training on two slices of two nodes."""
    output = directory / "reference.json"
    command = [sys.executable, "-m", f"{PACKAGE}.reference", f"--slices={SLICES}"]
    command += ["--nodes-per-slice=2", f"--steps={STEPS}", f"--output={output}", *arguments]
    environment = {**os.environ, **ON_ONE_MACHINE, **compiled_once(directory)}
    subprocess.run(command, env=environment, check=True, timeout=200, capture_output=True)
    result: dict[str, Any] = json.loads(output.read_text())
    return result


@nodes_per_slice(2)
def test_every_tier_leads_to_the_same_weights(training: Training, tmp_path: Path) -> None:
    training.start()
    training.wait_step(10)
    training.processes[3].kill()
    assert training.wait_codes(6) == [75, 75, 75, -9]
    assert training.tiers() == {(None, "fresh")}

    training.nodes.replace("node-2")
    training.start()
    training.wait_step(15)
    training.wait_until("a backup", training.backed_up)
    assert {tier for _, tier in training.tiers()} == {"local", "peer"}
    training.processes[0].kill()
    assert training.wait_codes(6) == [-9, 75, 75, 75], "nor does the coordinator's end abort the others"

    training.nodes.wipe_ram(*training.nodes.names)
    training.start()
    assert training.wait_codes(START_SECONDS) == [0, 0, 0, 0]
    assert {tier for _, tier in training.tiers()} == {"backup"}
    assert training.exists(f"lm/checkpoints/{STEPS}/commit_success.txt")

    status = training.read("lm/everstep/status.json")
    assert (status["phase"], status["step"], status["last_durable_save"]) == ("done", STEPS, STEPS)
    uninterrupted = reference(tmp_path)
    assert (status["loss"], status["weights_sha256"]) == (uninterrupted["loss"], uninterrupted["weights_sha256"])
    skipped = reference(tmp_path, f"--skip-batch={STEPS - 5}")
    assert (skipped["loss"], skipped["weights_sha256"]) != (status["loss"], status["weights_sha256"])


@nodes_per_slice(1)
def test_a_planned_save_outlives_the_nodes_and_a_fresh_start_is_refused(training: Training) -> None:
    training.start(EVERSTEP_FINAL_STEP="100000", EVERSTEP_BACKUP_EVERY_MINUTES="600")
    training.wait_step(5)
    training.ask_for_save(1, "suspend-1")
    training.wait_until("the save", lambda: training.read("lm/everstep/status.json")["save_answered"] == "suspend-1")
    saved = training.read("lm/everstep/status.json")["save_step"]
    assert training.exists(f"lm/checkpoints/{saved}/commit_success.txt")
    for process in training.processes:
        process.send_signal(signal.SIGTERM)
    assert training.wait_codes(1) == [76, 76]

    training.nodes.replace(*training.nodes.names)
    final = saved + 5
    half_written = f"lm/checkpoints/{final}/d/left-by-a-dead-attempt"
    training.write(half_written, {})
    training.start(EVERSTEP_FINAL_STEP=str(final), EVERSTEP_BACKUP_EVERY_MINUTES="600")
    assert training.wait_codes(START_SECONDS) == [0, 0]
    assert training.tiers() == {(saved, "durable")}
    assert training.exists(f"lm/checkpoints/{final}/commit_success.txt")
    assert not training.exists(half_written), "a save that was not finished is replaced as a whole"

    training.nodes.replace(*training.nodes.names)
    record = {"version": 1, "lineage": "", "launch": 1, "nodes": 2, "data_parallelism": 2, "bound_step": saved - 1}
    training.write("lm/everstep/run.json", record)
    training.start()
    assert training.wait_codes(START_SECONDS) == [66, 66], "saved progress, and nothing within the bound"
