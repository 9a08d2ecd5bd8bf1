"""The mounted checkpoint directory of a node, read as it is now. Nothing here writes or deletes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from everstep.checkpoints import names
from everstep.checkpoints.local_tier import Entry, EntryKind

INIT_INFO = "jax-init-info.txt"
CONFIG = "replicator.yaml"
PRERESTORE = "replicator.prerestore"
ERRORS = "replicator.errors"
FAILED = "replicator.failed"


@dataclass(frozen=True)
class FileIdentity:
    """Tells one writing of a file from the next. A file that was there before says nothing about now."""

    inode: int
    modified: int
    size: int


def entries(directory: Path) -> list[Entry]:
    """All entries, as lstat sees them. Entries that vanish while being read are left out."""
    found = []
    with os.scandir(directory) as scan:
        for item in scan:
            try:
                found.append(_entry(item))
            except FileNotFoundError:
                continue
    return found


def data_names(directory: Path) -> frozenset[str]:
    """Names ``<digest>.data`` that are there now."""
    return frozenset(entry.name for entry in entries(directory) if names.is_data_name(entry.name))


def untaken_saves(directory: Path) -> list[int]:
    """Steps whose saves are still where they were written. A replicator that works renames them within moments."""
    steps = [names.parse_step(entry.name) for entry in entries(directory) if entry.kind == "directory"]
    return sorted(step for step in steps if step is not None)


def identity(path: Path) -> FileIdentity | None:
    """Which writing of the file is there; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return FileIdentity(status.st_ino, status.st_mtime_ns, status.st_size)


def read_text(path: Path) -> str | None:
    """The file's text; None if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _entry(item: os.DirEntry[str]) -> Entry:
    if item.is_symlink():
        return Entry(item.name, "symlink", resolves=os.path.exists(item.path))
    kind: EntryKind = "directory" if item.is_dir(follow_symlinks=False) else "file"
    return Entry(item.name, kind, item.stat(follow_symlinks=False).st_size)
