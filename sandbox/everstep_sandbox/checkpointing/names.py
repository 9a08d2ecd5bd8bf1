"""Names of files that the replicator makes or looks for, on RAM disks and in backups."""

from __future__ import annotations

import re
from typing import NamedTuple

CONFIG = "replicator.yaml"
PRERESTORE = "replicator.prerestore"
ERRORS = "replicator.errors"
FAILED = "replicator.failed"
JAX_INIT_INFO = "jax-init-info.txt"
FORCED_RESTORE = "restore.version"

BACKUP_DIRECTORY = re.compile(r"\d{4}-\d{2}-\d{2}_\d{2}-\d{2}")
STEP_DIRECTORY = re.compile(r"[0-9]+")
DATA = re.compile(r"(D?[a-z0-9]{64})\.data")
_MEMBER = re.compile(r"(.+)-s(\d+)-n(\d+)-w(\d+)\.(meta|save|restore)")


class Member(NamedTuple):
    """What `<job>-s<step>-n<node>-w<worker>.<kind>` says."""

    job: str
    step: int
    node: int
    worker: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.job}-s{self.step}-n{self.node}-w{self.worker}.{self.kind}"


def parse(name: str) -> Member | None:
    """Parsed from the right: a job's name may itself look like the rest."""
    match = _MEMBER.fullmatch(name)
    if match is None:
        return None
    job, step, node, worker, kind = match.groups()
    return Member(job, int(step), int(node), int(worker), kind)


def data_name(digest: str) -> str:
    return f"{digest}.data"
