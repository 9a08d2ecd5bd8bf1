"""Where provisioning works: a cluster file, and clients of the provisioner, opened when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.clients.access import ClusterAccess, GoogleAccess, StorageAccess
from everstep.clients.errors import NotConfigured
from everstep.spec import files
from everstep.spec.cluster import ClusterSpec
from everstep.spec.parsing import merge, parse, read_yaml

if TYPE_CHECKING:
    from types import TracebackType

    from everstep.clients.google import GoogleCloud
    from everstep.clients.kubernetes import KubernetesClient
    from everstep.spec.training import TrainingSpec


class Site:
    """A cluster file with ways to what it describes. A context: leaving it closes the clients.

    :param spec: the cluster file
    :param folder: where it lies; paths in it are relative to this
    :param runs: runs of this cluster, whose pods need access to their folders
    :param kubeconfig: reaches the cluster without Airflow
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        folder: Path,
        runs: tuple[TrainingSpec, ...] = (),
        kubeconfig: str | None = None,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.runs = runs
        self.kubeconfig = kubeconfig
        self._open = ExitStack()
        self._kubernetes: KubernetesClient | None = None
        self._google: GoogleCloud | None = None
        self._refusal = ""

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def cluster_access(self) -> ClusterAccess:
        """Return the way to the cluster's API that the provisioner takes."""
        if self.kubeconfig is not None:
            return ClusterAccess.of_kubeconfig(self.kubeconfig, self.spec.name)
        own = self.spec.provisioning.kubernetes_connection
        access = ClusterAccess.of(self.spec)
        return replace(access, connection=own) if own else access

    @property
    def way(self) -> str:
        """Return how the cluster is reached, as findings name it."""
        access = self.cluster_access
        return f"kubeconfig {access.kubeconfig}" if access.kubeconfig else f"connection {access.connection!r}"

    @property
    def storage_access(self) -> StorageAccess:
        """Return the way to Cloud Storage that the provisioner takes."""
        if self.kubeconfig is not None:
            return StorageAccess()
        return StorageAccess(self.spec.provisioning.google_cloud_connection or self.spec.google_cloud_connection)

    @property
    def google_access(self) -> GoogleAccess:
        """Return the way to Google Cloud's APIs that the provisioner takes."""
        if self.kubeconfig is not None:
            return GoogleAccess()
        return GoogleAccess(self.spec.provisioning.google_cloud_connection or self.spec.google_cloud_connection)

    def access(self) -> dict[str, Any]:
        """Return the ways to cluster and cloud as plain data, for triggers; no secrets."""
        return {
            "cluster": self.cluster_access.as_dict(),
            "storage": self.storage_access.as_dict(),
            "google": self.google_access.as_dict(),
        }

    def refuse_cluster(self, why: str) -> None:
        """Give out no more clients of the cluster's API: the way leads to another one."""
        self._refusal = why

    def kubernetes(self) -> KubernetesClient:
        """Return a client of the cluster's API. Raises NotConfigured once it was refused."""
        if self._refusal:
            raise NotConfigured(f"{self.way}: {self._refusal}")
        if self._kubernetes is None:
            self._kubernetes = self._open.enter_context(self.cluster_access.open())
        return self._kubernetes

    def google(self) -> GoogleCloud:
        """Return a client of Google Cloud's APIs."""
        if self._google is None:
            self._google = self._open.enter_context(self.google_access.open())
        return self._google


def load_site(
    cluster: ClusterSpec | str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    beside: Path | None = None,
    kubeconfig: str | None = None,
) -> Site:
    """Return the site of a cluster file: given, or found by its path as `files.locate` does.

    Raises FindingsError with all mistakes of the file.
    """
    if isinstance(cluster, ClusterSpec):
        folder = Path.cwd() if beside is None else beside if beside.is_dir() else beside.parent
        given = parse(ClusterSpec, merge(cluster.model_dump(mode="json"), overrides), f"cluster {cluster.name!r}")
        return Site(given if overrides else cluster, folder=folder, kubeconfig=kubeconfig)
    found = files.locate(cluster, beside)
    spec = parse(ClusterSpec, merge(read_yaml(found), overrides), found.name)
    return Site(spec, folder=found.parent, runs=_runs_of(spec, found), kubeconfig=kubeconfig)


def _runs_of(spec: ClusterSpec, file: Path) -> tuple[TrainingSpec, ...]:
    """Return the runs in `runs/` beside the cluster files' folder that name this cluster.

    Raises FindingsError when one of them is wrong: its pods would lack access to their folder.
    """
    from everstep.spec.training import TrainingSpec

    folder = file.parent.parent / "runs"
    named = [path for path in sorted(folder.glob("*.yaml")) if read_yaml(path).get("cluster") == spec.name]
    return tuple(parse(TrainingSpec, read_yaml(path), path.name).on(spec) for path in named)
