"""Parts of the cluster file that only provisioning reads: how cluster, buckets and controllers are made."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from everstep.spec.cluster_names import Given, MachineType, ProjectId
from everstep.spec.gke_versions import LEAST_FOR_NEW, GkeVersion
from everstep.spec.parsing import Strict
from everstep.spec.quantities import Size, parse_bytes, with_unit


class TolerationSpec(Strict):
    """A toleration as Kubernetes has it."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = "NoSchedule"

    @model_validator(mode="after")
    def _kubernetes_takes_it(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("no value with operator Exists (the default): write operator: Equal")
        if self.operator == "Equal" and not self.key:
            raise ValueError("a key with operator Equal")
        if self.key is not None and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?", self.key):
            raise ValueError(f"a taint's key, such as google.com/tpu, not {self.key!r}")
        return self


class SystemNodesSpec(Strict):
    """Nodes for controllers, not for training; Google recommends two or more e2-standard-4 for large training."""

    machine_type: MachineType = "e2-standard-4"
    count: int = Field(default=2, ge=1, description="Nodes in each of the cluster's zones")


class GkeSpec(Strict):
    """The cluster itself."""

    version: str | None = Field(
        default=None,
        description="Of a new cluster, e.g. 1.34.1-gke.1829001; GKE's default if absent",
    )
    release_channel: Literal["rapid", "regular", "stable", "extended", "none"] = "regular"
    node_locations: tuple[str, ...] = Field(default=(), description="Zones of the nodes: where the accelerators are")
    system_nodes: SystemNodesSpec = Field(default_factory=SystemNodesSpec)
    network: Given | None = None
    subnetwork: Given | None = None

    @field_validator("version")
    @classmethod
    def _version_has_checkpointing(cls, value: str | None) -> str | None:
        if value is not None and GkeVersion.of(value) < LEAST_FOR_NEW:
            raise ValueError(f"at least {LEAST_FOR_NEW}, the first one with multi-tier checkpointing")
        return value


class BucketSpec(Strict):
    """A bucket for backups, durable saves and reports, or for scratch files."""

    location: Given | None = Field(default=None, description="Region of the bucket; the cluster's if absent")
    project: ProjectId | None = Field(default=None, description="Project of the bucket; the cluster's if absent")
    soft_delete_days: int = Field(
        default=0,
        description="Days for which deleted bytes can be had back, and are billed: 0 (off), or 7 to 90. Retention "
        "keeps a trash of its own, so that off is the default",
    )
    kms_key: str | None = Field(
        default=None,
        pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$",
        description="Customer-managed key that encrypts new objects",
    )
    compute_default_viewer: bool = Field(
        default=False, description="Let the Compute Engine default service account read objects"
    )

    @field_validator("soft_delete_days")
    @classmethod
    def _days_fit(cls, value: int) -> int:
        if value != 0 and not 7 <= value <= 90:
            raise ValueError("0 (off), or 7 to 90 days: Cloud Storage takes no others")
        return value


class JobSetSpec(Strict):
    """The JobSet controller."""

    manifest: Given | None = Field(
        default=None, description="Path (beside the cluster file) of a release's manifest that may be installed"
    )
    manager_cpu: str = Field(default="1", pattern=r"^\d+(\.\d+)?m?$", description="Least CPUs of the manager")
    manager_memory: Size = Field(default="1Gi", description="Least memory of the manager")
    manager_memory_limit: Size = Field(default="2Gi", description="Least limit of its memory, where it has one")

    @field_validator("manifest")
    @classmethod
    def _manifest_is_a_file(cls, value: str | None) -> str | None:
        if value is not None and "://" in value:
            raise ValueError(f"a file, so that what is installed can't change: curl -Lo jobset.yaml {value}")
        return value

    @field_validator("manager_memory", "manager_memory_limit")
    @classmethod
    def _memory_has_a_unit(cls, value: str) -> str:
        return with_unit(value)

    @model_validator(mode="after")
    def _limit_is_enough(self) -> Self:
        if parse_bytes(self.manager_memory_limit) < parse_bytes(self.manager_memory):
            raise ValueError(f"a manager_memory_limit of {self.manager_memory}, its manager_memory, or more")
        return self


class ProvisioningSpec(Strict):
    """Connections of the identity that may change clusters, buckets and IAM."""

    google_cloud_connection: Given | None = Field(
        default=None,
        description="Airflow connection to Google Cloud; the cluster file's google_cloud_connection if absent",
    )
    kubernetes_connection: Given | None = Field(
        default=None,
        description="Airflow connection to the cluster; the cluster file's kubernetes_connection if absent",
    )
