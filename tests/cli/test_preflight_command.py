"""``everstep preflight`` on bad input of every kind: findings, exit code 1, no traceback, and nothing is made."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.clients.access import ClusterAccess
from everstep.provision import priority_classes

pytestmark = pytest.mark.sandbox


@dataclass
class Files:
    """A run file and its cluster file, and how the command reaches cluster and storage."""

    folder: Path
    run: dict[str, Any]
    cluster: dict[str, Any]
    kubeconfig: str
    storage: str
    kubernetes: Any
    raw: dict[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.run["name"])

    def refused(self) -> str:
        """Run the command, and return what it prints of a run that it must refuse."""
        for kind, data in (("runs/run", self.run), (f"clusters/{self.cluster['name']}", self.cluster)):
            path = self.folder / f"{kind}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self.raw.get(kind, yaml.safe_dump(data).encode()))
        before = self.writes()
        ended = subprocess.run(
            [
                Path(sys.executable).with_name("everstep"),
                "preflight",
                self.folder / "runs" / "run.yaml",
                "--kubeconfig",
                self.kubeconfig,
            ],
            env={**os.environ, "STORAGE_EMULATOR_HOST": self.storage},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        told = ended.stdout + ended.stderr
        assert ended.returncode == 1, told
        assert "Traceback" not in told
        assert self.writes() == before, "preflight changes nothing"
        return told

    def writes(self) -> list[str]:
        log = self.kubernetes.directory / "writes.jsonl"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def files(
    tmp_path: Path,
    bare_kubernetes: Any,
    cloud_storage: Any,
    new_bucket: str,
    run_data: dict[str, Any],
    cluster_data: dict[str, Any],
) -> Files:
    unique = uuid.uuid4().hex[:6]
    run_data["name"] = f"lm-{unique}"
    run_data["priority"] = f"high-{unique}"
    cluster_data["priorities"] = {f"high-{unique}": 2000, f"low-{unique}": 1000}
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    return Files(
        tmp_path, run_data, cluster_data, str(bare_kubernetes.kubeconfig), cloud_storage.address, bare_kubernetes
    )


def test_mistakes_of_both_files_are_told_at_once(files: Files) -> None:
    files.run["trainer"]["imagee"] = "x"
    files.cluster["pools"]["v6e-2x4"]["topology"] = "4x4"
    told = files.refused()
    assert "trainer.imagee: an unknown key" in told
    assert "8 and 4x4 has 16" in told


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "a" * 60}, "has 60 characters"),
        ({"checkpoints": {"local": {"every_steps": 5}, "data_parallelism": 3}}, "a divisor of the number of nodes"),
        ({"cluster": "nowhere"}, "clusters there are: sandbox"),
    ],
)
def test_what_does_not_fit_is_refused(files: Files, change: dict[str, Any], expected: str) -> None:
    files.run |= change
    assert expected in files.refused()


@pytest.mark.parametrize("content", [b"a: [1,\n b: }", b"", b"\xff\xfe\x00binary"])
def test_what_is_no_yaml_mapping_is_refused(files: Files, content: bytes) -> None:
    files.raw["runs/run"] = content
    assert "run.yaml" in files.refused()


@pytest.mark.parametrize("content", [None, "{{{"])
def test_a_kubeconfig_that_is_missing_or_broken_is_named_and_the_bucket_still_looked_at(
    files: Files, tmp_path: Path, content: str | None
) -> None:
    files.kubeconfig = str(tmp_path / "kubeconfig")
    if content is not None:
        Path(files.kubeconfig).write_text(content)
    told = files.refused()
    assert f"error: the cluster: can't be looked at: kubeconfig {files.kubeconfig}: " in told
    assert "nothing to restore: the run starts from step 0" in told


def test_a_storage_that_is_down_and_a_class_that_differs_are_told_together(files: Files) -> None:
    files.storage = "http://127.0.0.1:9"
    with ClusterAccess.of_kubeconfig(files.kubeconfig).open() as client:
        priority_classes.create(client, files.run["priority"], 1234)
    told = files.refused()
    assert "error: the bucket: can't be looked at" in told
    assert f"PriorityClass {files.run['priority']}: value 1234; expected value 2000" in told


def test_a_cluster_that_refuses_everything_gives_one_finding(files: Files) -> None:
    files.kubernetes.fault(match="/version", status=403, times=1)
    told = files.refused()
    assert told.count("error:") == 1
    assert "leave to read it; remedy: grant it to the launcher" in told


def test_a_bucket_that_is_missing_is_told(files: Files) -> None:
    files.cluster["checkpoint_configurations"]["everstep"]["bucket"] = "nowhere-to-be-found"
    assert "gs://nowhere-to-be-found: no such bucket" in files.refused()


def test_a_lease_that_cannot_be_read_hides_nothing_else(files: Files, cloud_storage: Any) -> None:
    bucket = files.cluster["checkpoint_configurations"]["everstep"]["bucket"]
    upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={files.name}/everstep/lease.json"
    cloud_storage.post(upload, {"version": 1})
    told = files.refused()
    assert "expected a lease as Everstep writes it" in told
    assert "nothing to restore" in told
