"""The run file: what an ML engineer says about one training run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from everstep.checkpoints.catalogue import Shape
from everstep.spec import files
from everstep.spec.checks import check_together
from everstep.spec.cluster import CheckpointConfigurationSpec, ClusterSpec
from everstep.spec.findings import Finding, all_of, raise_on_errors
from everstep.spec.parsing import Strict, merge, parse, read_yaml
from everstep.spec.pools import PoolSpec
from everstep.spec.quantities import Size, parse_bytes

# Weights and both moments of Adam in 32 bits (MaxText's documentation of checkpoint sizes).
BYTES_PER_PARAMETER = 12

Count = int | Literal["always"]
# A thousand years: more does not fit into a time.
Hours = Annotated[float, Field(ge=0, le=8_766_000, allow_inf_nan=False)]


class SlicesSpec(Strict):
    """Where the run runs, and what takes the place of a lost slice."""

    pool: str = Field(description="A pool of the cluster file")
    count: int = Field(ge=1, description="Slices of the run")
    spare: Literal["preempt", "idle", "none"] = Field(
        default="none",
        description="preempt: take a slice from a lower priority; idle: one stands free; none: wait for the repair",
    )


class LocalSpec(Strict):
    """Saves into the node's RAM disk."""

    directory: str = Field(default="/local", description="Mount path of the RAM disk in the container")
    every_steps: int = Field(ge=1, description="A save every that many steps")

    @field_validator("directory")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", value):
            raise ValueError("an absolute path below /, such as /local")
        return value


class BackupSpec(Strict):
    """Backups of the RAM disks to the bucket, made by the replicator."""

    every_minutes: float = Field(gt=0, description="Least minutes between two backups")


class DurableSpec(Strict):
    """Saves that the trainer writes straight to the bucket."""

    at_end: bool = Field(default=True, description="Save the last step; without it a run's last steps live in RAM only")
    every_hours: float | None = Field(default=None, gt=0, description="Also save every that many hours")


class CheckpointsSpec(Strict):
    """How a run saves."""

    framework: Literal["orbax", "pytorch.distributed"] = "orbax"
    local: LocalSpec
    backup: BackupSpec = BackupSpec(every_minutes=30)
    durable: DurableSpec = DurableSpec()
    size: Size | None = Field(default=None, description="One node's checkpoint, e.g. 96GiB")
    parameters: float | None = Field(
        default=None, gt=0, description="Model parameters, e.g. 8e9, when no size is given"
    )
    data_parallelism: int | None = Field(
        default=None, ge=1, description="Groups of nodes that hold equal state; the number of slices unless given"
    )

    @model_validator(mode="after")
    def _size_or_parameters(self) -> Self:
        if self.size is not None and self.parameters is not None:
            raise ValueError("either size or parameters, not both")
        return self


class ResourcesSpec(Strict):
    """What a container asks for beside its accelerators."""

    cpu: str | None = Field(default=None, pattern=r"^\d+(\.\d+)?m?$")
    memory: Size | None = None

    @field_validator("cpu", mode="before")
    @classmethod
    def _number_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class TrainerSpec(Strict):
    """The training container."""

    image: str = Field(min_length=1)
    command: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    resources: ResourcesSpec = ResourcesSpec()
    service_account: str | None = None
    uses_library: bool = Field(
        default=True, description="The script uses everstep_trainer; if not, an observer beside it reports for it"
    )
    observer_image: str | None = Field(default=None, description="Image of the observer; the trainer's unless given")
    handshake_seconds: int = Field(
        default=900, ge=1, description="Deadline of the start-up handshake with the replicator"
    )
    grace_seconds: int = Field(
        default=10, ge=0, le=600, description="Grace period of the pods: everybody's recovery waits for it"
    )

    @field_validator("env", mode="before")
    @classmethod
    def _values_are_text(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {
            key: str(item) if isinstance(item, int | float) and not isinstance(item, bool) else item
            for key, item in value.items()
        }

    @field_validator("env")
    @classmethod
    def _names_are_free(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"names of letters, digits and '_', not {name!r}")
            if name.startswith("EVERSTEP_"):
                raise ValueError(f"names that don't start with EVERSTEP_, which launch sets itself: {name!r}")
        return value


class RecoverySpec(Strict):
    """How far recovery may go by itself."""

    restarts: int = Field(
        default=10, ge=0, description="Restarts of the JobSet; disruptions and lost peers don't count"
    )
    attempts: int = Field(
        default=5, ge=1, description="JobSets of the run: the first one and those that replace a failed one"
    )
    on_kill: Literal["detach", "suspend", "delete"] = Field(
        default="detach",
        description="What becomes of the JobSet when a user marks the waiting task failed or clears it",
    )
    deadline_hours: float = Field(
        default=24 * 14, gt=0, description="The wait for the end of one JobSet gives up after that"
    )


class BestSpec(Strict):
    """Keep the best checkpoints by a metric."""

    metric: str = Field(min_length=1, description="A metric that is saved with the steps, e.g. loss")
    count: int = Field(default=1, ge=1)
    mode: Literal["min", "max"] = Field(default="min", description="Whether the smallest or the largest is the best")


class RetentionSpec(Strict):
    """Which complete backups and saves a sweep keeps: what any rule keeps. Periods are counts, or `always`."""

    minutely: Count = 0
    hourly: Count = 24
    daily: Count = 7
    weekly: Count = 5
    monthly: Count = "always"
    yearly: Count = "always"
    prefer_recent: bool = Field(default=True, description="Keep the newest of each period, else the oldest")
    relaxed: bool = Field(default=False, description="Count periods that have backups only, however far back they lie")
    keep_last: int = Field(default=2, ge=1, description="The newest complete ones, whatever their age")
    every_steps: int | None = Field(default=None, ge=1, description="Steps that this divides")
    within_hours: Hours | None = Field(default=None, gt=0, description="All that are younger")
    best: BestSpec | None = None
    pins: tuple[str, ...] = Field(
        default=(), description="Names that stay: 2026-03-01_00-00, or checkpoints/500 for a save"
    )
    keep_complete: int = Field(
        default=2,
        ge=1,
        description="The newest complete ones that stay whatever else is said, in all and of the lineage",
    )
    young_hours: Hours = Field(default=1, description="Nothing younger goes")
    incomplete_hours: Hours = Field(default=24, ge=1, description="Nothing incomplete that is younger goes")
    trash_hours: Hours = Field(
        default=48, description="What was swept can be had back so long; leftovers of crashes stay so long"
    )
    max_share: float = Field(
        default=0.9, gt=0, le=1, description="A plan that removes a larger part of what is complete has to be forced"
    )

    @field_validator("minutely", "hourly", "daily", "weekly", "monthly", "yearly", mode="before")
    @classmethod
    def _a_count(cls, value: Any) -> Any:
        """Refuse what would pass for a count: `yes` would mean 1."""
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not is_count and value != "always":
            raise ValueError("a whole number from 0, or 'always'")
        return value


class TrainingSpec(Strict):
    """A training run as `dags/runs/<name>.yaml` describes it, together with its cluster file."""

    name: str = Field(description="The run: its JobSet, its folder in the bucket, its name in every log")
    cluster: str = Field(description="Name of a cluster file")
    slices: SlicesSpec
    priority: str | None = Field(default=None, description="A priority of the cluster file")
    checkpoints: CheckpointsSpec
    trainer: TrainerSpec
    final_step: int | None = Field(default=None, ge=1, description="The step at which training is complete")
    allow_fresh_start: bool = Field(
        default=False, description="May start from nothing although something is there to restore"
    )
    recovery: RecoverySpec = RecoverySpec()
    retention: RetentionSpec = RetentionSpec()

    _cluster: ClusterSpec | None = PrivateAttr(None)

    @classmethod
    def from_yaml(
        cls,
        path: str | Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        beside: Path | None = None,
    ) -> TrainingSpec:
        """Read a run file and its cluster file, `../clusters/<cluster>.yaml` or `clusters/<cluster>.yaml` from it.

        `overrides` are nested mappings or dotted keys that win over the file. A relative path is looked for beside
        `beside` (by default the file that calls this) and in the working directory. Raises FindingsError with all
        mistakes of both files.
        """
        found = files.locate(path, beside or files.calling_file())
        data = merge(read_yaml(found), overrides)
        name = data.get("cluster")
        spec, cluster = all_of(
            lambda: parse(cls, data, found.name),
            lambda: ClusterSpec.from_yaml(files.cluster_file(found, name)) if isinstance(name, str) else None,
        )
        assert cluster is not None, "a spec without the name of a cluster is refused"
        return spec.on(cluster)

    def on(self, cluster: ClusterSpec) -> TrainingSpec:
        """Return this run on a cluster. Raises FindingsError when the two don't fit together."""
        raise_on_errors(f"run {self.name!r} does not fit cluster {cluster.name!r}", check_together(self, cluster))
        placed = self.model_copy()
        placed._cluster = cluster
        return placed

    def findings(self) -> list[Finding]:
        """Return what deserves a warning, or a remark, in a run that has no errors."""
        return [*check_together(self, self.cluster_spec), *self.cluster_spec.remarks()]

    @property
    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster file. Raises LookupError on a spec that was built without one."""
        if self._cluster is None:
            raise LookupError(
                f"run {self.name!r} has no cluster file: read it by TrainingSpec.from_yaml, or call "
                "spec.on(ClusterSpec.from_yaml(path))"
            )
        return self._cluster

    @property
    def pool(self) -> PoolSpec:
        """Return the pool that the run's slices come from."""
        return self.cluster_spec.pools[self.slices.pool]

    @property
    def checkpoint_configuration(self) -> CheckpointConfigurationSpec:
        """Return the checkpoint configuration that the run's nodes fall under."""
        found = self.cluster_spec.configuration_of(self.pool.machine_type)
        assert found is not None, "check_together refuses such a spec"
        return found[1]

    @property
    def bucket(self) -> str:
        """Return the bucket of the run's folder."""
        return self.checkpoint_configuration.bucket

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the run."""
        return self.slices.count * self.pool.nodes_per_slice

    @property
    def data_parallelism(self) -> int:
        """Return how many groups of nodes hold equal state."""
        return self.checkpoints.data_parallelism or self.slices.count

    @property
    def shape(self) -> Shape:
        """Return the shape by which the replicator of this run judges a backup."""
        return Shape(self.nodes, 1, self.data_parallelism)

    @property
    def bytes_per_node(self) -> int | None:
        """Return the size of one node's checkpoint in bytes; None when the run file says nothing of it."""
        return self.on_pool_bytes_per_node(self.pool)

    def on_pool_bytes_per_node(self, pool: PoolSpec) -> int | None:
        """Return the size of one node's checkpoint in bytes if the slices came from `pool`."""
        if self.checkpoints.size is not None:
            return parse_bytes(self.checkpoints.size)
        if self.checkpoints.parameters is None:
            return None
        groups = self.checkpoints.data_parallelism or self.slices.count
        nodes = self.slices.count * pool.nodes_per_slice
        return int(BYTES_PER_PARAMETER * self.checkpoints.parameters * groups / nodes)
