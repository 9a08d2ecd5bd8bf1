"""A training job without a framework: its side of the handshake, and saves made of given text.

For tests and experiments with replicators; what a real trainer does in between does not matter to them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.inotify import Inotify
from everstep_sandbox.checkpointing.testing import StandaloneNodes

Found = TypeVar("Found")
WAIT_SECONDS = 20.0


def wait_in(directory: Path, find: Callable[[Path], Found | None]) -> Found:
    """What `find(directory)` gives, as soon as it is something; asked again when anything changes in the directory.

    Raises TimeoutError after WAIT_SECONDS.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    events = Inotify()
    try:
        events.watch(directory)
        while True:
            with contextlib.suppress(FileNotFoundError):
                if found := find(directory):
                    return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not seen in {WAIT_SECONDS} s; there is: {sorted(os.listdir(directory))}")
            events.wait(0.2)
    finally:
        events.close()


def text_of(path: Path) -> str:
    """The text of a file, as soon as it is there and not empty."""
    return wait_in(path.parent, lambda directory: (directory / path.name).read_text())


def appear(path: Path) -> None:
    """Waits for a file or directory."""
    wait_in(path.parent, lambda directory: (directory / path.name).exists())


def logged(log: Path, text: str) -> None:
    """Waits until a log says so."""
    wait_in(log.parent, lambda directory: text in log.read_text())


class ScriptedJob:
    """A job over all nodes, one part per node. `config`: keys of `replicator.yaml`, None leaves a key out."""

    def __init__(self, nodes: StandaloneNodes, **config: object) -> None:
        self.nodes = nodes
        self._config = {
            "job-name": "run",
            "framework": "pytorch.distributed",
            "backup-interval-minutes": 0,
            **config,
        }
        self._attempt = 0
        self.disks: list[Path] = []

    def start(self, placement: Sequence[str] | None = None) -> list[str]:
        """One attempt up to the restore; returns each rank's marker."""
        placed = list(placement or self.nodes.names)
        mounts = self.nodes.launch(
            self.name, slices=len(placed), nodes_per_slice=1, attempt=self._attempt, placement=placed
        )
        self._attempt += 1
        by_rank: dict[int, Path] = {}
        for mount in mounts:
            info = text_of(mount.directory / "jax-init-info.txt")
            by_rank[int(info.split()[0])] = mount.directory
        self.disks = [by_rank[rank] for rank in range(len(placed))]
        for rank, disk in enumerate(self.disks):
            self.write_config(rank, disk)
        return [self._marker(disk) for disk in self.disks]

    def write_config(self, rank: int, disk: Path) -> None:
        count = len(self.disks)
        config = {
            "node-rank": rank,
            "nodes": count,
            "peer-ranks": [(rank + 1) % count],
            **self._config,
        }
        aside = disk / "replicator.yaml.tmp"
        lines = [f"{key}: {value}\n" for key, value in config.items() if value is not None]
        aside.write_text("".join(lines))
        aside.rename(disk / "replicator.yaml")

    def write_save(self, step: int, contents: Sequence[str]) -> None:
        """A save of every rank, as the job itself makes it."""
        for disk, content in zip(self.disks, contents, strict=True):
            aside = disk / f"{step}.orbax-checkpoint-tmp"
            aside.mkdir()
            (aside / "weights").write_text(content)
            aside.rename(disk / str(step))

    def save(self, step: int, contents: Sequence[str]) -> None:
        """A save of every rank, up to the metas that the replicators make of it."""
        self.write_save(step, contents)
        for rank, disk in enumerate(self.disks):
            appear(disk / f"{self.name}-s{step}-n{rank}-w0.meta")

    def saved_everywhere(self, step: int) -> None:
        """Waits until older steps have been cleared away, which follows the global replication of `step`."""
        for disk in self.disks:
            wait_in(disk, lambda directory: steps(directory) == {step})

    def replicated(self, step: int) -> None:
        """Waits until every node has heard that `step` is replicated globally."""
        for node in self.nodes.names:
            logged(self.nodes.log(node), f"All files were replicated globally for step {step}\n")

    def restored(self, rank: int) -> str:
        """What the rank's marker leads to."""
        marker = next(self.disks[rank].glob("*.restore"))
        return (marker / "weights").read_text()

    def prerestore(self, rank: int) -> str:
        return (self.disks[rank] / "replicator.prerestore").read_text().strip()

    @property
    def name(self) -> str:
        return str(self._config["job-name"])

    def _marker(self, disk: Path) -> str:
        wait_in(disk, lambda directory: not (directory / "replicator.yaml").exists())
        return wait_in(disk, lambda directory: [path.name for path in directory.glob("*.restore")])[0]


def steps(disk: Path) -> set[int]:
    """Steps that a RAM disk has metas of."""
    return {int(path.name.rsplit("-s", 1)[1].split("-")[0]) for path in disk.glob("*.meta")}


class JobBackups:
    """The job's folder in the bucket, looked at from outside."""

    def __init__(self, url: str, name: str, job: str = "run") -> None:
        self.url = url
        self.name = name
        self.folder = JobFolder(url, name, job)

    def backups(self) -> list[str]:
        return sorted(name for name in self.folder.list("")[1] if name[:1].isdigit())

    def listing(self, backup: str) -> tuple[list[str], list[str]]:
        objects, folders = self.folder.list(f"{backup}/")
        return sorted(objects), sorted(folders)

    def wait_for(self, find: Callable[[], Found | None]) -> Found:
        """Nothing tells of changes in a bucket: looks again and again."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := find()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not seen in {WAIT_SECONDS} s; backups: {self.backups()}")
            time.sleep(0.02)
        return found
