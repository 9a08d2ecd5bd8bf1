"""The demo's stack: a sandbox, an Airflow beside it, and a low-priority filler on one of three slices.

The sandbox begins as an empty project, which Airflow provisions, or with its cluster furnished.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from everstep_sandbox.airflow_stack import AirflowSettings, AirflowStack, stop_airflow

REPOSITORY = Path(__file__).resolve().parents[3]
SLICES, HOSTS, SPEED = 3, 2, 10
PROJECT = "everstep-sandbox"
FILLER = "batch-eval"
FILLER_PRIORITY = ("training-low", 1_000_000)
TRAINING_PRIORITY = ("training-high", 2_000_000)


class StackError(RuntimeError):
    """A part of the stack did not start or did not do what was asked."""


class DemoStack:
    """Starts and stops the whole stack under one directory; everything in it is made anew.

    ``airflow_options`` are environment variables for Airflow beyond those that it needs to find the sandbox.
    ``controlplane`` is ``sandbox`` or ``real``.
    """

    def __init__(
        self,
        directory: Path,
        progress: Callable[[str], None],
        *,
        airflow_options: Mapping[str, str] | None = None,
        controlplane: str = "sandbox",
    ) -> None:
        self.controlplane = controlplane
        self._airflow_options = dict(airflow_options or {})
        self.directory = directory.resolve()
        self.sandbox_directory = self.directory / "sandbox"
        self.progress = progress
        self._airflow: AirflowStack | None = None

    @property
    def addresses(self) -> Mapping[str, Any]:
        """The sandbox's addresses and files, from its ``sandbox.json``."""
        found: Mapping[str, Any] = json.loads((self.sandbox_directory / "sandbox.json").read_text())
        return found

    @property
    def airflow(self) -> AirflowStack:
        """The Airflow of this stack; it exists once the sandbox runs, because it is told the sandbox's addresses."""
        if self._airflow is None:
            settings = AirflowSettings(self.directory / "airflow", REPOSITORY / "dags", self.airflow_environment())
            self._airflow = AirflowStack(settings)
        return self._airflow

    def start_empty_project(self) -> None:
        """Starts a sandbox from nothing that has no cluster and no bucket yet."""
        self._clear()
        self.progress(f"sandbox: an empty project; timers {SPEED} times as fast as real ones")
        self._everstep("sandbox", "up", "--empty", f"--speed={SPEED}")
        self.progress(f"sandbox: Google Cloud at {self.addresses['google']}, storage at {self.addresses['storage']}")

    def start_sandbox(self) -> None:
        """Starts a sandbox from nothing with its cluster, bucket and classes, and puts the filler on one slice."""
        self._clear()
        self.progress(f"sandbox: starting {SLICES} slices of {HOSTS} nodes; timers {SPEED} times as fast as real ones")
        sizes = (f"--slices={SLICES}", f"--hosts={HOSTS}", f"--speed={SPEED}")
        self._everstep("sandbox", "up", *sizes, f"--controlplane={self.controlplane}")
        self.progress(f"sandbox: Kubernetes at {self.addresses['kubernetes']}, storage at {self.addresses['storage']}")
        classes = kubernetes_client.SchedulingV1Api(self._kubernetes())
        for name, value in (FILLER_PRIORITY, TRAINING_PRIORITY):
            classes.create_priority_class({"metadata": {"name": name}, "value": value})
        self.start_filler()

    def start_filler(self) -> None:
        """Puts a JobSet of low priority on one slice."""
        kubernetes_client.CustomObjectsApi(self._kubernetes()).create_namespaced_custom_object(
            "jobset.x-k8s.io", "v1alpha2", "default", "jobsets", filler_jobset()
        )
        self.progress(f"sandbox: {FILLER}, of low priority, holds one slice")

    def start_airflow(self) -> None:
        """Starts Airflow beside a running sandbox."""
        self.airflow.start(progress=self.progress)

    def fault(self, *arguments: str) -> None:
        """Causes a fault as ``everstep sandbox fault …`` does."""
        self._everstep("sandbox", "fault", *arguments)

    def lose_node(self, node: str) -> None:
        """Loses a node, and with it its slice; it is repaired after the cluster has dealt with the loss."""
        # A real control plane collects a deleted node's pods after 40 to 80 s; the usual repair takes as long here.
        later = ("--repair-after=1800",) if self.controlplane == "real" else ()
        self.fault("node-gone", node, *later)

    def stop(self) -> None:
        """Stops everything that runs under the directory, whoever started it. Idempotent."""
        stop_airflow(self.directory / "airflow")
        if self.sandbox_directory.exists():
            self._everstep("sandbox", "down")

    def client_environment(self) -> dict[str, str]:
        """What clients of Cloud Storage in this process need to find the sandbox's."""
        return {"STORAGE_EMULATOR_HOST": str(self.addresses["storage"])}

    def airflow_environment(self) -> dict[str, str]:
        """The connections that ``dags/clusters/sandbox.yaml`` names, and the storage's address."""
        # The cluster of an empty project writes this file once it exists.
        kubernetes = {"kube_config_path": str(self.sandbox_directory / "kubeconfig")}
        google = {
            "is_anonymous": True,
            "project": PROJECT,
            "google_endpoint": self.addresses["google"],
            "storage_endpoint": self.addresses["storage"],
        }
        return {
            **self._airflow_options,
            **self.client_environment(),
            "AIRFLOW_CONN_EVERSTEP_SANDBOX": json.dumps({"conn_type": "kubernetes", "extra": kubernetes}),
            "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps({"conn_type": "google_cloud_platform", "extra": google}),
        }

    def _clear(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def _kubernetes(self) -> kubernetes_client.ApiClient:
        return kubernetes_config.new_client_from_config(str(self.addresses["kubeconfig"]))

    def _everstep(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "everstep.cli.main", *arguments, "--directory", str(self.sandbox_directory)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(
                f"everstep {' '.join(arguments)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )


def filler_jobset() -> dict[str, Any]:
    """A JobSet of low priority that keeps one slice busy until something more important needs it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": FILLER,
            "namespace": "default",
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
        },
        "spec": {
            "failurePolicy": {"maxRestarts": 100, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "parallelism": HOSTS,
                            "completions": HOSTS,
                            "backoffLimit": 0,
                            "template": {"spec": _filler_pod()},
                        }
                    },
                }
            ],
        },
    }


def _filler_pod() -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "priorityClassName": FILLER_PRIORITY[0],
        "terminationGracePeriodSeconds": 2,
        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": "filler",
                "image": "busybox:1.36",
                "command": ["sleep", "100000"],
                "resources": {"limits": {"google.com/tpu": "4"}},
            }
        ],
    }
