"""What a diagnosis is made of: plain objects, read from a live cluster or from a bundle. Pure.

What could not be read is noted as such, so that nobody takes the absence of evidence for health.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from everstep.launch import labels

if TYPE_CHECKING:
    from everstep.spec.cluster import ClusterSpec
    from everstep.spec.training import TrainingSpec

Object = dict[str, Any]

KINDS: dict[str, str] = {
    "version": "the cluster's API server",
    "definitions": "CustomResourceDefinitions of checkpointing and JobSet",
    "configurations": "CheckpointConfigurations",
    "configuration-events": "events about CheckpointConfigurations",
    "daemonsets": "DaemonSets of the checkpoint driver",
    "deployments": "Deployments of the controllers",
    "driver-pods": "pods of the checkpoint driver",
    "driver-events": "warnings about the checkpoint driver",
    "controller-pods": "pods of the JobSet controller",
    "nodes": "nodes",
    "priority-classes": "PriorityClasses",
    "jobsets": "the run's JobSet",
    "service-account": "the ServiceAccount of the run's pods",
    "jobs": "the run's Jobs",
    "pods": "the run's pods",
    "events": "warnings in the run's namespace",
    "quotas": "ResourceQuotas of the run's namespace",
    "local-queue": "the LocalQueue",
    "cluster-queue": "the ClusterQueue",
    "workloads": "Kueue's Workload of the run",
    "cluster": "the cluster's description by GKE",
    "operations": "GKE's operations",
    "project": "the project's number",
    "buckets": "metadata of the buckets",
    "bucket-policies": "IAM policies of the buckets",
    "run-folder": "the run's folder in the bucket",
    "attempts": "reports of the run's last attempts",
}
"""What evidence there is, by the name of its file in a bundle."""

TRUSTED = "trustedByClient"
"""Added to GKE's description of the cluster: whether the client trusts the cluster's own authority alone."""


@dataclass(frozen=True)
class Target:
    """What is looked at, and what was wanted of it. Plain data; zero or empty where nobody said.

    :param buckets: all buckets concerned; `bucket` is the run's
    :param configurations: CheckpointConfiguration -> `bucket` and `machine_type`
    :param pool: labels of the nodes that the run's pods select
    """

    cluster: str = ""
    project: str = ""
    location: str = ""
    namespace: str = "default"
    run: str = ""
    bucket: str = ""
    buckets: tuple[str, ...] = ()
    configurations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pool: Mapping[str, str] = field(default_factory=dict)
    slices: int = 0
    nodes_per_slice: int = 0
    data_parallelism: int = 0
    backup_minutes: float = 0.0
    priority: str = ""
    priorities: Mapping[str, int] = field(default_factory=dict)
    preempts: bool = False
    queue: str = ""

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the run; 0 when nobody said."""
        return self.slices * self.nodes_per_slice

    @property
    def gcloud_cluster(self) -> str:
        """Return cluster, location and project as gcloud's commands take them."""
        words = [self.cluster or "CLUSTER", f"--location={self.location or 'LOCATION'}"]
        return " ".join([*words, f"--project={self.project or 'PROJECT'}"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "buckets": list(self.buckets)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Target:
        """Return what `as_dict` gave; what a newer version added is left out."""
        known = {one.name for one in fields(cls)}
        kept = {key: value for key, value in data.items() if key in known}
        return cls(**{**kept, "buckets": tuple(kept.get("buckets") or ())})

    @classmethod
    def of_cluster(cls, spec: ClusterSpec) -> Target:
        """Return what a cluster file says."""
        named = {each.bucket for each in spec.checkpoint_configurations.values()} | {spec.scratch_bucket}
        return cls(
            cluster=spec.name,
            project=spec.project,
            location=spec.location,
            namespace=spec.namespace,
            buckets=tuple(sorted(name for name in named if name)),
            configurations={
                name: {"bucket": each.bucket, "machine_type": each.machine_type}
                for name, each in spec.checkpoint_configurations.items()
            },
            priorities=dict(spec.priorities),
            queue=spec.queue or "",
        )

    @classmethod
    def of_run(cls, spec: TrainingSpec) -> Target:
        """Return what a run file and its cluster file say."""
        whole = cls.of_cluster(spec.cluster_spec)
        found = spec.cluster_spec.configuration_of(spec.pool.machine_type)
        own = {} if found is None else {found[0]: whole.configurations[found[0]]}
        return cls(
            **{
                **asdict(whole),
                "run": spec.name,
                "bucket": spec.bucket,
                "buckets": (spec.bucket,),
                "configurations": own,
                "pool": spec.pool.node_labels(),
                "slices": spec.slices.count,
                "nodes_per_slice": spec.pool.nodes_per_slice,
                "data_parallelism": spec.data_parallelism,
                "backup_minutes": spec.checkpoints.backup.every_minutes,
                "priority": spec.priority or "",
                "preempts": spec.slices.spare == "preempt",
            }
        )

    @classmethod
    def of_jobset(cls, jobset: Mapping[str, Any], cluster: str = "") -> Target:
        """Return what a JobSet says of its run, also one that Everstep did not launch."""
        metadata, spec = jobset["metadata"], jobset.get("spec") or {}
        replicated = (spec.get("replicatedJobs") or [{}])[0]
        job = (replicated.get("template") or {}).get("spec") or {}
        pod = (job.get("template") or {}).get("spec") or {}
        said = {
            variable["name"]: str(variable.get("value") or "")
            for container in pod.get("containers") or []
            for variable in container.get("env") or []
        }
        bucket = said.get("EVERSTEP_RUN_URL", "").removeprefix("gs://").partition("/")[0]
        slices = int(replicated.get("replicas") or 1)
        return cls(
            cluster=cluster,
            namespace=metadata.get("namespace", "default"),
            run=metadata["name"],
            bucket=bucket,
            buckets=(bucket,) if bucket else (),
            pool=dict(pod.get("nodeSelector") or {}),
            slices=slices,
            nodes_per_slice=int(job.get("parallelism") or 1),
            data_parallelism=int(said.get("EVERSTEP_DATA_PARALLELISM") or slices),
            backup_minutes=float(said.get("EVERSTEP_BACKUP_EVERY_MINUTES") or 0),
            priority=pod.get("priorityClassName") or "",
            queue=(metadata.get("labels") or {}).get(labels.QUEUE_NAME, ""),
        )


@dataclass
class Evidence:
    """Objects by kind (the keys of KINDS), ends of logs by `namespace/pod/container`, and what could not be read.

    :param taken: when it was read
    :param unread: why evidence of a kind is not there, by kind; for logs by `log of namespace/pod/container`
    """

    target: Target
    taken: datetime = field(default_factory=lambda: datetime.now(UTC))
    objects: dict[str, list[Object]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def all(self, kind: str) -> list[Object]:
        """Return all objects of a kind; none where they could not be read."""
        return self.objects.get(kind, [])

    def one(self, kind: str) -> Object | None:
        """Return the first object of a kind, None where there is none or it could not be read."""
        found = self.all(kind)
        return found[0] if found else None

    def saw(self, *kinds: str) -> bool:
        """Say whether all these kinds could be read, so that what is not there can be told to be missing."""
        return all(kind in self.objects for kind in kinds)
