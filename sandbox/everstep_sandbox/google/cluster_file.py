"""`DIR/cluster.json`: the cluster that stands behind GKE's API in a sandbox, for those parts that must know of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from everstep_sandbox.kubernetes.files import write_atomically


@dataclass(frozen=True)
class ClusterFile:
    """The parts that make a cluster run as long as this file is there."""

    name: str
    """`projects/P/locations/L/clusters/C`."""
    number: str
    """Of the project."""
    checkpointing: bool
    """Whether the add-on HighScaleCheckpointing is on."""
    gcs_fuse: bool
    """Whether the add-on GcsFuseCsiDriver is on."""
    workload_pool: str | None
    """None without Workload Identity: pods then act as their machine's service account."""
    furnished: bool = False

    @property
    def workload_principal(self) -> str:
        """The principal of a workload, with places for its namespace and its ServiceAccount."""
        pool = f"projects/{self.number}/locations/global/workloadIdentityPools/{self.workload_pool}"
        return f"principal://iam.googleapis.com/{pool}/subject/ns/{{namespace}}/sa/{{account}}"

    @property
    def driver_principal(self) -> str:
        """The principal of the checkpoint drivers."""
        return self.workload_principal.format(
            namespace="gke-managed-checkpointing", account="gke-checkpointing-multitier-node"
        )

    @property
    def machine_account(self) -> str:
        return f"{self.number}-compute@developer.gserviceaccount.com"


def path(directory: Path) -> Path:
    return directory / "cluster.json"


def read(directory: Path) -> ClusterFile | None:
    """None where there is no cluster."""
    try:
        return ClusterFile(**json.loads(path(directory).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write(directory: Path, cluster: ClusterFile) -> None:
    write_atomically(path(directory), json.dumps(asdict(cluster), indent=1))
