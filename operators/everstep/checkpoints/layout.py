"""Where the objects of a run lie in its bucket. The only module that knows these paths.

``gs://<bucket>/<run>/`` holds the replicator's dated backups, ``restore.version``, durable saves under
``checkpoints/<step>/`` and Everstep's own records under ``everstep/``.
"""

from __future__ import annotations

from dataclasses import dataclass

COMMIT_MARKER = "commit_success.txt"
RECORDS = "everstep"
DURABLE = "checkpoints"
RESTORE_VERSION = "restore.version"
HIERARCHY_TEST = "atomic-rename-test"
HIERARCHY_TEST_PASSED = "atomic-rename-test-passed"
RESERVED = frozenset({RECORDS, DURABLE, RESTORE_VERSION, HIERARCHY_TEST, HIERARCHY_TEST_PASSED})
"""First path parts below a run that are never backups."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Properties are object names or prefixes inside the bucket; prefixes end with
    ``/``.
    """

    bucket: str
    run: str

    def __post_init__(self) -> None:
        if not self.bucket or "/" in self.bucket:
            raise ValueError(f"bucket {self.bucket!r}: expected a bucket name without 'gs://' and '/'")
        if not self.run or "/" in self.run:
            raise ValueError(f"run {self.run!r} of bucket {self.bucket}: expected a name without '/'")

    @classmethod
    def from_url(cls, url: str) -> RunFolder:
        """Parse ``gs://<bucket>/<run>`` (a trailing slash is allowed). Raises ValueError for anything else."""
        scheme, separator, rest = url.partition("://")
        bucket, slash, run = rest.rstrip("/").partition("/")
        if scheme != "gs" or not separator or not slash:
            raise ValueError(f"run URL {url!r}: expected gs://<bucket>/<run>")
        return cls(bucket, run)

    @property
    def prefix(self) -> str:
        return f"{self.run}/"

    @property
    def records_prefix(self) -> str:
        return f"{self.prefix}{RECORDS}/"

    @property
    def run_record(self) -> str:
        """What launch tells the trainer: shape, lineage, bound (``run.json``)."""
        return f"{self.records_prefix}run.json"

    @property
    def lease(self) -> str:
        return f"{self.records_prefix}lease.json"

    @property
    def status(self) -> str:
        """Written by node rank 0 every few seconds (``status.json``)."""
        return f"{self.records_prefix}status.json"

    @property
    def attempts_prefix(self) -> str:
        return f"{self.records_prefix}attempts/"

    def attempt_prefix(self, launch: int, restart: int) -> str:
        """The reports of one attempt: a launch's JobSet at one restart count."""
        return f"{self.attempts_prefix}{launch:04d}-{restart:04d}/"

    def attempt_node(self, launch: int, restart: int, rank: int) -> str:
        return f"{self.attempt_prefix(launch, restart)}node-{rank}.json"

    @property
    def restore_version(self) -> str:
        """The replicator's forced-restore pointer: its text is the name of one backup directory."""
        return f"{self.prefix}{RESTORE_VERSION}"

    @property
    def durable_prefix(self) -> str:
        return f"{self.prefix}{DURABLE}/"

    def durable_step(self, step: int) -> str:
        return f"{self.durable_prefix}{step}/"

    def durable_marker(self, step: int) -> str:
        """The object whose presence makes a durable save complete (Orbax writes it last)."""
        return f"{self.durable_step(step)}{COMMIT_MARKER}"

    def backup_prefix(self, name: str) -> str:
        return f"{self.prefix}{name}/"

    def url(self, path: str = "") -> str:
        """``gs://`` URL of a path that starts at the bucket's root; without one, of the run's folder."""
        return f"gs://{self.bucket}/{path or self.run}"
