"""`sandbox.json`: where a sandbox's parts answer and which processes they are."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil


@dataclass(slots=True)
class Record:
    """Written when the sandbox is ready. Addresses are of loopback; `pids` names the supervisor and each part."""

    kubernetes: str
    storage: str
    kubelet: str
    kubeconfig: str
    bucket: str
    speed: float
    slices: int
    hosts: int
    controlplane: str = "sandbox"
    google: str = ""
    """Address of Google's APIs but storage."""
    empty: bool = False
    """Started as an empty project; `kubernetes`, `kubelet` and `kubeconfig` are "" until it has a cluster."""
    pids: dict[str, int] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    """Start time of each of these processes: a pid alone may be another process by now."""

    def is_alive(self, part: str) -> bool:
        return part in self.pids and is_process(self.pids[part], self.started.get(part, 0.0))

    def missing(self) -> list[str]:
        """Parts whose process has ended."""
        return [part for part in self.pids if not self.is_alive(part)]


def start_time(pid: int) -> float:
    """When a process started; 0 where there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def is_process(pid: int, started: float) -> bool:
    """Whether this process still runs (an ended one that nobody has reaped does not)."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def path(directory: Path) -> Path:
    return directory / "sandbox.json"


def read(directory: Path) -> Record | None:
    """The record, or None where there is none that can be read."""
    try:
        return Record(**json.loads(path(directory).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(directory: Path, record: Record) -> None:
    """Replaces the record, whole or not at all."""
    aside = path(directory).with_suffix(".tmp")
    aside.write_text(json.dumps(asdict(record), indent=1) + "\n")
    os.replace(aside, path(directory))
