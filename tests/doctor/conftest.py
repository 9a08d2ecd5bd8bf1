"""A furnished sandbox for the faults that it has, started once for all tests of the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.clinic import Clinic
from tests.sandbox_command import run_sandbox

from everstep.launch import manifest
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep_sandbox.google.testing import RunningGoogle, running_google
from everstep_sandbox.stack import record, sweep

BUCKET = "everstep-demo"


class Sandbox(Clinic):
    """`everstep sandbox up` with two slices of two hosts, its faults, and runs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self("up", "--slices=2", "--hosts=2", "--speed=20", f"--bucket={BUCKET}")
        known = record.read(directory)
        assert known is not None
        self.known = known
        super().__init__(known.kubeconfig, known.storage, known.google)

    def __call__(self, *words: str) -> str:
        return run_sandbox(self.directory, *words)

    def fault(self, *words: str) -> Any:
        return json.loads(self("fault", *words))

    def jobset(self, spec: TrainingSpec, **changes: Any) -> dict[str, Any]:
        """A run's JobSet, without the lease that a launch takes."""
        body = manifest.build(spec, launch=1, holder="test")
        pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod.update(changes)
        return body


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    directory = tmp_path_factory.mktemp("doctor")
    try:
        made = Sandbox(directory)
        yield made
        made.close()
    finally:
        subprocess.run(
            [sys.executable, "-m", "everstep_sandbox", "sandbox", "down", f"--directory={directory}"], check=False
        )
    assert sweep.survivors(directory) == []


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGoogle]:
    """Google's APIs alone."""
    with running_google(tmp_path_factory.mktemp("google"), speed=200) as server:
        yield server


@pytest.fixture
def spec(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> TrainingSpec:
    """A run of one slice on the sandbox, which sleeps."""
    run_data |= {
        "name": "lm",
        "slices": {"pool": "v6e-2x4", "count": 1, "spare": "none"},
        "priority": None,
        "trainer": {"image": "python:3.11", "command": ["sleep", "600"], "uses_library": True},
    }
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = BUCKET
    cluster_data["priorities"] = {}
    return TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
