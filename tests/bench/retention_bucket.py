"""The bucket of the retention bench: a million objects in a thousand backups, made up when somebody asks for them.

Names, checksums and sizes of an object follow from its place alone, so the server holds little and answers fast.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

NEWEST = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shape:
    """Nodes of a run, its data parallelism, and files in each data folder."""

    nodes: int
    data_parallelism: int | None
    files: int

    @property
    def with_data(self) -> int:
        """Nodes that upload data: the last group's, or all."""
        return self.nodes // (self.data_parallelism or 1)

    @property
    def objects(self) -> int:
        """Objects in one backup."""
        return self.nodes + self.with_data * self.files

    @property
    def entries(self) -> int:
        """Entries of a listing of a backup's own level."""
        return self.nodes + self.with_data


SMALL = Shape(32, None, 29)
LARGE = Shape(4096, 16, 4)


@dataclass
class Run:
    """A run and its backups, newest first, half an hour apart."""

    name: str
    shape: Shape
    backups: list[str] = field(default_factory=list)


def runs(backups: int, large: int, count: int) -> list[Run]:
    """Return `count` runs with `backups` in all, `large` of them in the one of 4,096 nodes."""
    made = [Run("run-4096", LARGE, [stamp(number) for number in range(large)])]
    small = backups - large
    for number in range(count - 1):
        share = small // (count - 1) + (number < small % (count - 1))
        made.append(Run(f"run-{number:02d}", SMALL, [stamp(each) for each in range(share)]))
    return made


def stamp(number: int) -> str:
    """Return the name of a run's backup, 0 for the newest."""
    return (NEWEST - timedelta(minutes=30 * number)).strftime("%Y-%m-%d_%H-%M")


def digest(run: str, backup: str, node: int) -> str:
    """Return the digest of a node's data."""
    return "D" + hashlib.sha256(f"{run}/{backup}/{node}".encode()).hexdigest()


def metas(run: Run, backup: str) -> Iterator[tuple[str, str]]:
    """Return name and digest of each meta; nodes of all groups name the data of the last one."""
    shape = run.shape
    step = 1000 + 10 * (len(run.backups) - run.backups.index(backup))
    for node in range(shape.nodes):
        holder = shape.nodes - shape.with_data + node % shape.with_data
        yield f"{run.name}-s{step}-n{node}-w0.meta", digest(run.name, backup, holder)


@lru_cache(maxsize=64)
def level(run_name: str, backup: str, place: int) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return metas with their md5, and data folders, of one backup, in order of names."""
    run = PLACES[place]
    assert run.name == run_name
    found = tuple(sorted((name, md5(text)) for name, text in metas(run, backup)))
    first = run.shape.nodes - run.shape.with_data
    data = sorted(digest(run.name, backup, node) + ".data/" for node in range(first, run.shape.nodes))
    return found, tuple(data)


@lru_cache(maxsize=64)
def names(run_name: str, backup: str, place: int) -> tuple[str, ...]:
    """Return the names of all objects of a backup below its folder, in order."""
    run = PLACES[place]
    found, data = level(run_name, backup, place)
    files = ["manifest.ocdbt", *(f"d/{number:032x}" for number in range(run.shape.files - 1))]
    return tuple(sorted([name for name, _ in found] + [folder + file for folder in data for file in files]))


def md5(text: str) -> str:
    """Return the checksum as listings spell it."""
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()


PLACES: list[Run] = []
"""The runs that the server of this process serves."""
