"""Real servers of Google's APIs and Cloud Storage, an empty project, and cluster files."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everstep.clients.access import GOOGLE_ENDPOINT_VARIABLE
from everstep.clients.google import GoogleCloud
from everstep.provision.changes import Mode
from everstep.provision.cloud.steps import cloud_steps
from everstep.provision.everything import provision
from everstep.provision.site import Site
from everstep.provision.steps import Report
from everstep.spec.cluster import ClusterSpec
from everstep.spec.parsing import merge
from everstep.spec.training import TrainingSpec
from everstep_sandbox.google.testing import RunningGoogle, running_google
from everstep_sandbox.storage.process import running_storage

PROJECT = "everstep-sandbox"
BASE: dict[str, Any] = {
    "name": "tokyo",
    "project": PROJECT,
    "location": "us-east5-a",
    "kubernetes_connection": "tokyo",
    "pools": {
        "v6e-2x4": {
            "accelerator": "tpu-v6e-slice",
            "topology": "2x4",
            "machine_type": "ct6e-standard-4t",
            "chips_per_node": 4,
            "nodes_per_slice": 2,
            "slices": 2,
        }
    },
    "checkpoint_configurations": {
        "v6e": {"bucket": "acme-ckpt", "machine_type": "ct6e-standard-4t", "in_memory_volume_size": "256Mi"}
    },
}
SpecOf = Callable[..., ClusterSpec]


@pytest.fixture
def spec_of() -> SpecOf:
    """The smallest cluster file with changes laid over it: a mapping, whose keys may be dotted."""

    def make(changes: dict[str, Any] | None = None) -> ClusterSpec:
        return ClusterSpec.model_validate(merge(BASE, changes))

    return make


@pytest.fixture
def run_of() -> Callable[..., TrainingSpec]:
    """A run on a cluster."""

    def make(cluster: ClusterSpec, name: str, service_account: str | None = None) -> TrainingSpec:
        document = {
            "name": name,
            "cluster": cluster.name,
            "slices": {"pool": next(iter(cluster.pools)), "count": 1},
            "checkpoints": {"local": {"directory": "/local", "every_steps": 20}},
            "trainer": {"image": "x", "command": ["python"], "service_account": service_account},
            "final_step": 10,
        }
        return TrainingSpec.model_validate(document).on(cluster)

    return make


@dataclass
class Cloud:
    """A project in servers of its own."""

    google: RunningGoogle
    storage: str
    folder: Path

    def site(self, spec: ClusterSpec, *runs: TrainingSpec) -> Site:
        """The way there by the environment, as the command line takes it."""
        return Site(spec, folder=self.folder, runs=runs, kubeconfig="/nowhere")

    def run(self, spec: ClusterSpec, mode: Mode, *runs: TrainingSpec) -> Report:
        """All steps of the cloud half."""
        with self.site(spec, *runs) as site:
            # No control plane is behind these clusters, so that nobody can run on their nodes.
            return provision(site, cloud_steps(site, force=True), mode, print)

    def mutations(self) -> list[str]:
        """What has been changed by anybody, in Google's APIs and in storage."""
        calls = [f"{call['method']} {call['path']} {call['status']}" for call in self.google.calls()]
        path = self.folder / "storage" / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return calls + [f"{call['method']} {call['path']} {call['status']}" for call in map(json.loads, lines)]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """An empty project; long operations take a fraction of a second."""
    with running_google(tmp_path, speed=300) as google, running_storage(tmp_path / "storage", tmp_path) as storage:
        monkeypatch.setenv(GOOGLE_ENDPOINT_VARIABLE, google.address)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
        yield Cloud(google, storage, tmp_path)


@pytest.fixture
def client(cloud: Cloud, spec_of: SpecOf) -> Iterator[GoogleCloud]:
    """A client of both servers."""
    with cloud.site(spec_of()) as site:
        yield site.google()


@pytest.fixture
def connected(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Changes to a cluster file that take a connection whose service account owns the project."""
    key_file = cloud.google.identity("airflow")
    extra = {
        "keyfile_dict": key_file.read_text(),
        "google_endpoint": cloud.google.address,
        "storage_endpoint": cloud.storage,
        "project": "everstep-sandbox",
    }
    connection = {"conn_type": "google_cloud_platform", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_PROVISIONER", json.dumps(connection))
    for variable in ("EVERSTEP_GOOGLE_ENDPOINT", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(variable)
    member = f"serviceAccount:{json.loads(key_file.read_text())['client_email']}"
    owner = {"policy": {"bindings": [{"role": "roles/owner", "members": [member]}]}}
    url = f"{cloud.google.address}/v3/projects/everstep-sandbox:setIamPolicy"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(owner).encode(), method="POST")).close()
    return {"provisioning.google_cloud_connection": "provisioner"}
