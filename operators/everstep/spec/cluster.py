"""The cluster file: what the platform team owns, and runs may only refer to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, field_validator, model_validator

from everstep.spec import machine_types
from everstep.spec.cluster_names import BucketName, Given, Label, MachineType, ObjectName, ProjectId
from everstep.spec.findings import Finding, note
from everstep.spec.parsing import Strict, parse, read_yaml
from everstep.spec.pools import PoolSpec
from everstep.spec.provisioning import BucketSpec, GkeSpec, JobSetSpec, ProvisioningSpec, TolerationSpec
from everstep.spec.quantities import Size, parse_bytes, with_unit

# Less than this can hold no checkpoint: it is a unit that was forgotten, as in 200k for 200Gi.
LEAST_RAM_BYTES = 2**20


class CheckpointConfigurationSpec(Strict):
    """One CheckpointConfiguration: the nodes of a machine type get a RAM disk and a bucket for backups."""

    bucket: BucketName = Field(description="Bucket of the backups, without gs://; hierarchical namespace")
    machine_type: MachineType = Field(description="Nodes that it covers")
    in_memory_volume_size: Size = Field(description="RAM disk of each node, e.g. 200Gi")
    checkpoint_size: Size | None = Field(
        default=None, description="Largest checkpoint of one node, e.g. 96GiB; the RAM disk is checked against it"
    )
    csi_ephemeral_limit: Size | None = Field(default=None, description="Ephemeral storage that the driver may use")
    mount_options: tuple[str, ...] = Field(
        default=(), description="Cloud Storage FUSE options; the recommended ones if none are given"
    )
    tolerations: tuple[TolerationSpec, ...] = Field(
        default=(), description="Of the driver's pods; the accelerator's own taint if none are given"
    )

    @property
    def ram_bytes(self) -> int:
        """Return the size of each node's RAM disk in bytes."""
        return parse_bytes(self.in_memory_volume_size)

    @field_validator("in_memory_volume_size", "csi_ephemeral_limit")
    @classmethod
    def _size_has_a_unit(cls, value: str | None) -> str | None:
        return None if value is None else with_unit(value)

    @field_validator("in_memory_volume_size")
    @classmethod
    def _size_is_some(cls, value: str) -> str:
        if parse_bytes(value) < LEAST_RAM_BYTES:
            raise ValueError("a RAM disk that holds checkpoints, such as 200Gi")
        return value

    @field_validator("mount_options")
    @classmethod
    def _options_are_single(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for option in value:
            if not re.fullmatch(r"[^\s,]+", option):
                raise ValueError(f"one option of Cloud Storage FUSE in each item, such as implicit-dirs: {option!r}")
        return value


class ClusterSpec(Strict):
    """A cluster as `dags/clusters/<name>.yaml` describes it."""

    name: Label = Field(description="Name of the file, and of the cluster in GKE")
    project: ProjectId = Field(description="Google Cloud project id (not its number)")
    location: Given = Field(description="Zone or region of the cluster")
    kubernetes_connection: Given = Field(
        description="Airflow connection to the cluster: `kubernetes` (a kubeconfig) or `google_cloud_platform` (GKE)"
    )
    endpoint: Literal["kubeconfig", "dns", "private", "public"] = Field(
        default="kubeconfig", description="How the API server is reached; all but kubeconfig look the cluster up in GKE"
    )
    google_cloud_connection: Given = Field(
        default="google_cloud_default", description="Airflow connection to Cloud Storage"
    )
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    pools: dict[str, PoolSpec] = Field(
        default_factory=dict, description="Accelerators by name; none where checkpointing is only tried, on CPU nodes"
    )
    checkpoint_configurations: dict[ObjectName, CheckpointConfigurationSpec] = Field(min_length=1)
    priorities: dict[ObjectName, int] = Field(default_factory=dict, description="PriorityClass name -> value")
    queue: ObjectName | None = Field(default=None, description="Kueue LocalQueue of the namespace; none without Kueue")
    gke: GkeSpec = Field(default_factory=GkeSpec, description="How the cluster is made, or what it has to have")
    buckets: dict[BucketName, BucketSpec] = Field(
        default_factory=dict, description="Buckets by name, where defaults don't do"
    )
    scratch_bucket: BucketName | None = Field(
        default=None, description="Bucket for scratch files of Pathways; none without it"
    )
    jobset: JobSetSpec = Field(default_factory=JobSetSpec, description="The JobSet controller")
    provisioning: ProvisioningSpec = Field(
        default_factory=ProvisioningSpec, description="Who changes all this; the run path never does"
    )

    # Machine types that were written otherwise than Compute Engine writes them.
    _misspelt: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def from_yaml(cls, path: str | Path) -> ClusterSpec:
        """Read a cluster file. Raises FindingsError with all mistakes."""
        path = Path(path)
        return parse(cls, read_yaml(path), path.name)

    def remarks(self) -> list[Finding]:
        """Return what is worth saying of a file that is right."""
        return [
            note("machine_type", repr(written), f"{machine_types.spelt_right(written)!r}, for which it is taken")
            for written in self._misspelt
        ]

    def configuration_of(self, machine_type: str) -> tuple[str, CheckpointConfigurationSpec] | None:
        """Return name and content of the CheckpointConfiguration that nodes of a machine type fall under."""
        for name, configuration in self.checkpoint_configurations.items():
            if configuration.machine_type == machine_type:
                return name, configuration
        return None

    def bucket(self, name: str) -> BucketSpec:
        """Return what the file says of a bucket; the defaults where it says nothing."""
        return self.buckets.get(name, BucketSpec())

    @property
    def region(self) -> str:
        """Return the region of the cluster's location."""
        return self.location.rsplit("-", 1)[0] if re.fullmatch(r".+-.+\d-[a-z]", self.location) else self.location

    @property
    def node_zones(self) -> tuple[str, ...]:
        """Return the zones of the nodes as far as the file says; none for a region whose zones GKE chooses."""
        return self.gke.node_locations or ((self.location,) if self.location != self.region else ())

    def node_pool_names(self, pool: str) -> tuple[str, ...]:
        """Return the names of a pool's node pools in GKE, one for each slice."""
        kind = self.pools[pool]
        return tuple(f"{kind.node_pools or pool}-{index}" for index in range(kind.slices))

    @field_validator("pools")
    @classmethod
    def _pools_name_node_pools(cls, value: dict[str, PoolSpec]) -> dict[str, PoolSpec]:
        for name, pool in value.items():
            if pool.node_pools is None and not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
                raise ValueError(
                    "names of lower-case letters, digits and '-' that begin with a letter, since node pools are "
                    f"called {name}-0, …; or give pool {name!r} a node_pools of its own"
                )
        return value

    @field_validator("priorities", mode="before")
    @classmethod
    def _priorities_are_numbers(cls, value: object) -> object:
        for name, priority in value.items() if isinstance(value, dict) else ():
            if isinstance(priority, bool):
                raise ValueError(f"a whole number for each name, but {name} is {priority}")
        return value

    @field_validator("priorities")
    @classmethod
    def _priorities_fit(cls, value: dict[str, int]) -> dict[str, int]:
        for name, priority in value.items():
            if name.startswith("system-"):
                raise ValueError(f"names that don't start with 'system-', which Kubernetes keeps: {name!r}")
            if not -2_147_483_648 <= priority <= 1_000_000_000:
                raise ValueError(f"values of at most 1000000000, the highest of a user's class: {name} = {priority}")
        return value

    @model_validator(mode="after")
    def _scratch_is_apart(self) -> Self:
        if self.scratch_bucket in {each.bucket for each in self.checkpoint_configurations.values()}:
            raise ValueError(
                f"a scratch_bucket that takes no backups, but {self.scratch_bucket!r} does: scratch files would lie "
                "among the runs' folders"
            )
        return self

    @model_validator(mode="after")
    def _buckets_are_used(self) -> Self:
        used = {each.bucket for each in self.checkpoint_configurations.values()} | {self.scratch_bucket}
        for name in self.buckets:
            if name not in used:
                raise ValueError(
                    f"buckets that a checkpoint configuration or scratch_bucket names, but {name!r} is neither"
                )
        return self

    @model_validator(mode="after")
    def _one_configuration_per_machine_type(self) -> Self:
        owners: dict[str, str] = {}
        for name, configuration in self.checkpoint_configurations.items():
            other = owners.setdefault(configuration.machine_type, name)
            if other != name:
                raise ValueError(
                    f"one checkpoint configuration per machine type, but {other!r} and {name!r} both cover "
                    f"{configuration.machine_type!r}: the second one would never get its driver"
                )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _remember_spelling(cls, data: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        made = build(data)
        if isinstance(data, Mapping):
            written = set(_machine_types(data))
            made._misspelt = tuple(sorted(each for each in written if machine_types.spelt_right(each) != each))
        return made


def _machine_types(data: Mapping[str, Any]) -> Iterator[str]:
    for section in ("pools", "checkpoint_configurations"):
        for each in (data.get(section) or {}).values():
            if isinstance(each, Mapping) and isinstance(each.get("machine_type"), str):
                yield each["machine_type"]
