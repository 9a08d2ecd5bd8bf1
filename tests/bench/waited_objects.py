"""What is waited for: JobSets and Jobs that no controller touches, and that run until the bench lets them end."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from tests.bench.api_server import JOBS, JOBSETS, ApiServer, Object, in_threads

from everstep.checkpoints.layout import RunFolder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.launch import labels

MANAGER = "everstep.dev/bench"
CONNECTION = "everstep_bench"
STORAGE_CONNECTION = "google_cloud_default"
BUCKET = "everstep-bench"
POD = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "python:3.11"}]}

Trigger = tuple[str, dict[str, Any]]


class TrainingRuns:
    """JobSets with a status.json each, waited for by Everstep."""

    name = "everstep"

    def __init__(self, api: ApiServer, storage: str, namespace: str, count: int) -> None:
        self._api, self._storage = api, storage
        self.namespace, self.count = namespace, count
        self._uids: dict[int, str] = {}

    def create(self) -> None:
        """Create them, all running."""
        in_threads(self._create, self.count)

    def triggers(self) -> list[Trigger]:
        """Return class and arguments of each wait."""
        return [
            training_trigger(object_name(number), self.namespace, self._uids[number]) for number in range(self.count)
        ]

    def end(self, number: int) -> None:
        """Let one end."""
        end = terminal("Completed", "AllJobsCompleted", "jobset completed successfully")
        self._api.patch_status(self._path(number), end)

    def _path(self, number: int) -> str:
        return f"{JOBSETS}/namespaces/{self.namespace}/jobsets/{object_name(number)}"

    def _create(self, number: int) -> None:
        name = object_name(number)
        made = self._api.call("POST", f"{JOBSETS}/namespaces/{self.namespace}/jobsets", jobset(name, self.namespace))
        self._uids[number] = made["metadata"]["uid"]
        ready = {"name": "slice", "ready": 1, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        self._api.patch_status(self._path(number), {"replicatedJobsStatus": [ready], "restarts": 0})
        folder = RunFolder(BUCKET, name)
        requests.post(
            f"{self._storage}/upload/storage/v1/b/{BUCKET}/o",
            params={"uploadType": "media", "name": folder.status},
            json={"launch": 1, "phase": "training", "step": 1},
            timeout=30,
        ).raise_for_status()


class Jobs:
    """Jobs, waited for by the provider's KubernetesJobTrigger."""

    name = "provider"

    def __init__(self, api: ApiServer, namespace: str, count: int) -> None:
        self._api = api
        self.namespace, self.count = namespace, count
        self._started = ""

    def create(self) -> None:
        """Create them, all running."""
        self._started = _now()
        in_threads(self._create, self.count)

    def triggers(self) -> list[Trigger]:
        """Return class and arguments of each wait: the trigger's defaults, so a look every 10 s."""
        return [
            (
                "tests.bench.timed_job.TimedJob",
                {
                    "job_name": object_name(number),
                    "job_namespace": self.namespace,
                    "pod_names": [f"{object_name(number)}-0"],
                    "pod_namespace": self.namespace,
                    "base_container_name": "trainer",
                    "kubernetes_conn_id": CONNECTION,
                },
            )
            for number in range(self.count)
        ]

    def end(self, number: int) -> None:
        """Let one end."""
        conditions = [_condition(kind, "CompletionsReached", "") for kind in ("SuccessCriteriaMet", "Complete")]
        self._api.patch_status(
            self._path(number),
            {"conditions": conditions, "completionTime": _now(), "active": 0, "ready": 0, "succeeded": 1},
        )

    def _path(self, number: int) -> str:
        return f"{JOBS}/namespaces/{self.namespace}/jobs/{object_name(number)}"

    def _create(self, number: int) -> None:
        self._api.call("POST", f"{JOBS}/namespaces/{self.namespace}/jobs", job(object_name(number), self.namespace))
        self._api.patch_status(self._path(number), {"startTime": self._started, "active": 1, "ready": 1})


class Sleeps:
    """Nothing: triggers that sleep, to tell what Airflow itself costs with so many of them."""

    name = "airflow"

    def __init__(self, count: int) -> None:
        self.count = count

    def create(self) -> None:
        """Create nothing."""

    def triggers(self) -> list[Trigger]:
        """Return class and arguments of each."""
        return [("tests.bench.plain_triggers.Sleeping", {"name": object_name(number)}) for number in range(self.count)]


def training_trigger(name: str, namespace: str, uid: str) -> Trigger:
    """Return class and arguments of Everstep's wait for a run, with the arguments that a launch gives it."""
    return (
        "tests.bench.timed_training.TimedTraining",
        {
            "cluster": ClusterAccess(name="bench", connection=CONNECTION).as_dict(),
            "storage": StorageAccess(connection=STORAGE_CONNECTION).as_dict(),
            "bucket": BUCKET,
            "run_name": name,
            "namespace": namespace,
            "uid": uid,
            "launch": 1,
            "deadline": time.time() + 86400,
        },
    )


def object_name(number: int) -> str:
    """Return the name of the object of that number."""
    return f"run-{number:04}"


def terminal(kind: str, reason: str, message: str) -> Object:
    """Return the status of a JobSet that has Completed or Failed."""
    return {"conditions": [_condition(kind, reason, message)], "terminalState": kind}


def jobset(name: str, namespace: str) -> Object:
    """Return a JobSet as Everstep launches it, of one pod, that no controller touches."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {labels.RUN: name, labels.OWNER: labels.owner_hash("bench")},
            "annotations": {labels.LAUNCH: "1", labels.HOLDER: "bench"},
        },
        "spec": {
            "managedBy": MANAGER,
            "replicatedJobs": [
                {"name": "slice", "replicas": 1, "template": {"spec": {"template": {"spec": POD}, "backoffLimit": 0}}}
            ],
        },
    }


def job(name: str, namespace: str) -> Object:
    """Return a Job of one pod that no controller touches."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"managedBy": MANAGER, "template": {"spec": POD}, "backoffLimit": 0},
    }


def connections(kubeconfig: Path, storage: str) -> dict[str, str]:
    """Return the environment by which Airflow finds the cluster and the storage."""
    import json

    kubernetes = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}}
    google = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "everstep-sandbox"}}
    return {
        f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(kubernetes),
        f"AIRFLOW_CONN_{STORAGE_CONNECTION.upper()}": json.dumps(google),
        "STORAGE_EMULATOR_HOST": storage,
    }


def _condition(kind: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
