"""What can be seen of a run from outside: its JobSet and pods in the cluster, its reports and backups in the bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from everstep.checkpoints.catalogue import Catalogue, Shape
from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import StorageAccess

JOBSET = ("jobset.x-k8s.io", "v1alpha2", "jobsets")


@dataclass(frozen=True)
class Attempt:
    """One incarnation of the run's pods: the launch (JobSet) and its restart."""

    launch: int
    restart: int


class RunView:
    """Reads a run's state; every call is a fresh read and never changes anything."""

    def __init__(self, *, kubeconfig: str, namespace: str, bucket: str, run: str, shape: Shape) -> None:
        api = kubernetes_config.new_client_from_config(kubeconfig)
        self._custom = kubernetes_client.CustomObjectsApi(api)
        self._core = kubernetes_client.CoreV1Api(api)
        self._bucket = StorageAccess().open(bucket)
        self._namespace = namespace
        self._shape = shape
        self.run = run
        self.folder = RunFolder(bucket, run)

    def jobset(self) -> dict[str, Any] | None:
        """The run's JobSet, or None."""
        group, version, plural = JOBSET
        try:
            found: dict[str, Any] = self._custom.get_namespaced_custom_object(
                group, version, self._namespace, plural, self.run
            )
        except kubernetes_client.ApiException as error:
            if error.status == 404:
                return None
            raise
        return found

    def attempt(self) -> Attempt | None:
        """The attempt that the run's JobSet is at now; None without a JobSet."""
        jobset = self.jobset()
        if jobset is None:
            return None
        launch = int(jobset["metadata"]["annotations"]["everstep.dev/launch"])
        return Attempt(launch, int(jobset.get("status", {}).get("restarts", 0)))

    def pods(self, jobset: str | None = None) -> list[Any]:
        """Pods of a JobSet (the run's unless another is named)."""
        selector = f"jobset.sigs.k8s.io/jobset-name={jobset or self.run}"
        pods: list[Any] = self._core.list_namespaced_pod(self._namespace, label_selector=selector).items
        return pods

    def running_nodes(self, attempt: Attempt) -> set[str]:
        """Nodes on which pods of an attempt are running."""
        return {
            pod.spec.node_name
            for pod in self.pods()
            if pod.status.phase == "Running"
            and pod.metadata.deletion_timestamp is None
            and pod.metadata.labels.get("jobset.sigs.k8s.io/restart-attempt") == str(attempt.restart)
        }

    def status(self) -> dict[str, Any]:
        """The run's ``status.json``; empty while there is none."""
        return self._bucket.run(run_folder.records(self.folder)).get("status.json", {})

    def node_reports(self, attempt: Attempt) -> list[dict[str, Any]]:
        """What each node of an attempt has reported, by rank."""
        return self._bucket.run(run_folder.attempt(self.folder, attempt.launch, attempt.restart))

    def catalogue(self) -> Catalogue:
        """The run's backups with their states."""
        return self._bucket.run(run_folder.contents(self.folder, self._shape)).catalogue
