"""How soon a trainer notices what its replicator has done, beside Orbax's own initialisation.

Both sides make handshakes in turn on the same two nodes, with the sandbox's real drivers, replicators and rank server.
The other node's part is played after a random delay of up to one of Orbax's polls, so that no side is in step with it.
What the replicator does is timed by the kernel's file events, what a side notices by its own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import percentile, ratio
from tests.bench.file_times import FileTimes
from tests.bench.handshake_sides import BACKUP_MINUTES, JOB, NODES, SIDES
from tests.bench.output import REPOSITORY, write

from everstep_sandbox.checkpointing.scripted_job import appear, text_of
from everstep_sandbox.checkpointing.testing import StandaloneNodes, create_bucket
from everstep_sandbox.storage.process import running_storage
from everstep_trainer.replicator_config import ReplicatorConfig

SAMPLES = 20
MOST_DELAY_SECONDS = 1.0
WAITING_SECONDS = 30.0
# What is noticed, the file that tells of it, and whether it comes or goes.
PHASES = {"rank": ("jax-init-info.txt", True), "consumed": ("replicator.yaml", False), "marker": (".restore", True)}


class Side:
    """A process that makes handshakes on request."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self.samples: list[dict[str, float]] = []
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.handshake_sides", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
            )
        self.answer()

    def ask(self, directory: Path) -> None:
        """Begin a handshake."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{directory}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Return what it answers. Raises RuntimeError when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side of {self.name} ended: {self._log.read_text()[-2000:]}")
        return line

    def cpu_seconds(self) -> float:
        """Return the processor seconds that all its threads have used, by the scheduler's own count."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def sample(side: Side, nodes: StandaloneNodes, attempt: int, times: FileTimes) -> dict[str, float]:
    """Make one handshake on the first node; return what was noticed how late, in ms, and the CPU it took."""
    ours = nodes.ram_disk("node-0")
    nodes.unmount()
    (ours / "jax-init-info.txt").unlink(missing_ok=True)
    since = time.monotonic()
    side.ask(ours)
    time.sleep(random.uniform(0, MOST_DELAY_SECONDS))
    mounts = nodes.launch(JOB, slices=NODES, nodes_per_slice=1, attempt=attempt)
    theirs = mounts[1].directory
    rank = int(text_of(theirs / "jax-init-info.txt").split()[0])
    time.sleep(random.uniform(0, MOST_DELAY_SECONDS))
    hand_over(theirs, ReplicatorConfig(JOB, "orbax", rank, NODES, (1 - rank,), BACKUP_MINUTES, NODES))
    told = json.loads(side.answer())
    late = {
        phase: 1000 * max(0.0, told["noticed"][phase] - times.first(name, came=came, since=since))
        for phase, (name, came) in PHASES.items()
    }
    waited = told["noticed"]["marker"] - told["began"]
    return {**late, "total": sum(late.values()), "cpu_ms": 1000 * told["cpu"], "seconds": waited}


def waiting(sides: list[Side], nodes: StandaloneNodes) -> dict[str, float]:
    """Let both sides wait for their ranks at the same time; return the CPU that takes each, in ms a minute."""
    nodes.unmount()
    for side, node in zip(sides, nodes.names, strict=True):
        (nodes.ram_disk(node) / "jax-init-info.txt").unlink(missing_ok=True)
        side.ask(nodes.ram_disk(node))
    time.sleep(1.0)
    before = [side.cpu_seconds() for side in sides]
    time.sleep(WAITING_SECONDS)
    spent = [side.cpu_seconds() - first for side, first in zip(sides, before, strict=True)]
    # Each gets what it waits for, as two nodes of one job.
    nodes.launch(JOB, slices=NODES, nodes_per_slice=1, attempt=1000)
    for side in sides:
        side.answer()
    return {side.name: round(60_000 * each / WAITING_SECONDS, 2) for side, each in zip(sides, spent, strict=True)}


def hand_over(directory: Path, config: ReplicatorConfig) -> None:
    """Play another node's trainer."""
    aside = directory / "replicator.yaml.tmp"
    aside.write_text(config.to_yaml())
    aside.rename(directory / "replicator.yaml")


def summary(samples: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians and 99th percentiles of what was noticed how late, and the CPU spent."""
    noticed = {
        phase: {
            "p50": round(percentile([one[phase] for one in samples], 0.5), 1),
            "p99": round(percentile([one[phase] for one in samples], 0.99), 1),
        }
        for phase in (*PHASES, "total")
    }
    return {
        "samples": len(samples),
        "late_ms": noticed,
        "cpu_ms_per_handshake": round(percentile([one["cpu_ms"] for one in samples], 0.5), 2),
        "seconds_per_handshake": round(percentile([one["seconds"] for one in samples], 0.5), 2),
    }


def main(options: Sequence[str] = ()) -> None:
    """Measure both sides in turn and write build/bench/handshake.json."""
    argparse.ArgumentParser(prog="python -m tests.bench handshake", description=__doc__).parse_args(options)
    with (
        tempfile.TemporaryDirectory(prefix="everstep-bench-") as directory,
        running_storage(Path(directory) / "storage") as storage,
    ):
        create_bucket(storage, "everstep-bench")
        sides = [Side(name, Path(directory) / f"{name}.log") for name in SIDES]
        try:
            with StandaloneNodes(Path(directory) / "nodes", storage, "everstep-bench", NODES) as nodes:
                measure(sides, nodes)
                cpu = waiting(sides, nodes)
        finally:
            for side in sides:
                side.stop()
    figures: dict[str, Any] = {side.name: summary(side.samples) for side in sides}
    for name, spent in cpu.items():
        figures[name]["cpu_ms_per_minute_of_waiting"] = spent
    ours, theirs = figures["everstep"], figures["orbax"]
    figures["ratio"] = {
        "late_ms_p50": ratio(ours["late_ms"]["total"]["p50"], theirs["late_ms"]["total"]["p50"]),
        "cpu_of_a_handshake": ratio(ours["cpu_ms_per_handshake"], theirs["cpu_ms_per_handshake"]),
        "cpu_of_waiting": ratio(ours["cpu_ms_per_minute_of_waiting"], theirs["cpu_ms_per_minute_of_waiting"]),
    }
    for name, found in figures.items():
        print(f"handshake {name}: {json.dumps(found)}")
    write("handshake.json", figures)


def measure(sides: list[Side], nodes: StandaloneNodes) -> None:
    """Take the samples. The first handshake of a side does not count: it finds nothing in any cache."""
    attempt = 0
    for number in range(1 + SAMPLES):
        # A driver gives up after ten replicators that ended for a new configuration, which every handshake is.
        nodes.unmount()
        nodes.stop(*nodes.names)
        nodes.start(*nodes.names)
        for side in sides:
            nodes.launch(JOB, slices=NODES, nodes_per_slice=1, attempt=attempt)
            appear(nodes.ram_disk("node-0") / "jax-init-info.txt")
            times = FileTimes(nodes.ram_disk("node-0"))
            try:
                found = sample(side, nodes, attempt + 1, times)
            finally:
                times.close()
            attempt += 2
            if number:
                side.samples.append(found)
                print(
                    f"handshake {number:2} {side.name:9} noticed {found['total']:7.1f} ms late in all, "
                    f"{found['cpu_ms']:5.1f} ms of CPU",
                    flush=True,
                )
