"""A run of its own for each test, on the bare API and a new bucket."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS, PRIORITY_CLASSES
from everstep.clients.storage import BucketClient
from everstep.launch.launcher import Launcher
from everstep.provision import priority_classes
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec


@dataclass
class World:
    """A run's spec, its cluster and its bucket."""

    spec: TrainingSpec
    cluster: KubernetesClient
    bucket: BucketClient

    def launcher(self, holder: str = "me", **options: Any) -> Launcher:
        return Launcher(self.spec, self.cluster, self.bucket, holder, **options)

    def jobset(self) -> dict[str, Any] | None:
        return self.cluster.find(JOBSETS, self.spec.name, "default")

    def end(self, kind: str) -> None:
        """Write a terminal condition, as the JobSet controller would."""
        self.cluster._request(
            "PATCH",
            JOBSETS.path("default", self.spec.name, "status"),
            body={
                "status": {
                    "terminalState": kind,
                    "conditions": [
                        {
                            "type": kind,
                            "status": "True",
                            "reason": "Test",
                            "message": f"it {kind}",
                            "lastTransitionTime": "2026-11-29T10:00:00Z",
                        }
                    ],
                }
            },
            content_type="application/merge-patch+json",
        )


@pytest.fixture
def world(
    bare_kubernetes: Any, cloud_storage: Any, new_bucket: str, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> World:
    run_data["name"] = f"lm-{uuid.uuid4().hex[:6]}"
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    cluster = ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open()
    for name, value in spec.cluster_spec.priorities.items():
        priority_classes.create(cluster, name, value)
    assert cluster.find(PRIORITY_CLASSES, "training-high") is not None
    return World(spec, cluster, StorageAccess(endpoint=cloud_storage.address).open(new_bucket))
