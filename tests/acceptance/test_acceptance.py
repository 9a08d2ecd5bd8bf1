"""The acceptance test of real projects, run whole against the sandbox; and that it can fail, and cleans up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep.acceptance import bucket_items
from everstep.acceptance.items import Judged, Record, tally
from everstep.acceptance.run import ground_of
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS, PODS, PRIORITY_CLASSES
from everstep.spec.findings import FindingsError

CLUSTER_FILE = Path(__file__).parents[2] / "dags" / "clusters" / "sandbox.yaml"
QUICK = ("--backup-minutes=0.2", "--save-seconds=1", "--patience=60")
# What a sandbox can't tell; everything else has to hold.
NOT_JUDGED = {"crd.fields", "rights.object-user", "bucket.request-rate", "bucket.autoclass"}


def everstep(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "everstep.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("acceptance") / "sandbox"
    place = f"--directory={directory}"
    started = everstep("sandbox", "up", place, "--slices=2", "--hosts=2")
    try:
        said, _ = started.communicate(timeout=120)
        assert started.returncode == 0, said
        yield json.loads((directory / "sandbox.json").read_text())
    finally:
        everstep("sandbox", "down", place, "--delete").communicate(timeout=60)


@pytest.fixture
def cluster(sandbox: dict[str, Any]) -> Iterator[KubernetesClient]:
    with ClusterAccess.of_kubeconfig(sandbox["kubeconfig"]).open() as client:
        yield client


def acceptance(sandbox: dict[str, Any], *arguments: str) -> subprocess.Popen[str]:
    return everstep(
        "acceptance",
        f"--cluster={CLUSTER_FILE}",
        *arguments,
        KUBECONFIG=sandbox["kubeconfig"],
        STORAGE_EMULATOR_HOST=sandbox["storage"],
        EVERSTEP_GOOGLE_ENDPOINT=sandbox["google"],
    )


def test_another_cluster_than_the_files_is_left_alone(sandbox: dict[str, Any], bare_kubernetes: Any) -> None:
    said, _ = (refused := acceptance({**sandbox, "kubeconfig": str(bare_kubernetes.kubeconfig)})).communicate(
        timeout=60
    )
    assert refused.returncode == 1 and f"it leads to {bare_kubernetes.address}" in said
    assert "gcloud container clusters get-credentials" in said


def leftovers(sandbox: dict[str, Any], cluster: KubernetesClient) -> list[str]:
    """JobSets, pods, priority classes and objects of any acceptance test."""
    selector = "app.kubernetes.io/component=acceptance"
    found = [one["metadata"]["name"] for one in cluster.list_all(JOBSETS, "default", labels=selector)]
    found += [one["metadata"]["name"] for one in cluster.list_all(PODS, "default")]
    classes = [one["metadata"]["name"] for one in cluster.list_all(PRIORITY_CLASSES)]
    found += [name for name in classes if name.startswith("everstep-acceptance")]
    listing = StorageAccess(endpoint=sandbox["storage"]).open(sandbox["bucket"]).list_level("")
    return found + [folder for folder in listing.folders if folder.startswith("everstep-acceptance")]


@pytest.mark.sandbox
def test_everything_holds_on_the_sandbox(sandbox: dict[str, Any], cluster: KubernetesClient, tmp_path: Path) -> None:
    running = acceptance(sandbox, *QUICK, f"--json={tmp_path / 'verdicts.json'}")
    said, _ = running.communicate(timeout=280)
    verdicts = {one["item"]: one for one in json.loads((tmp_path / "verdicts.json").read_text())}
    assert {item for item, one in verdicts.items() if one["judged"] == "differs"} == set(), said
    assert {item for item, one in verdicts.items() if one["judged"] == "not judged"} == NOT_JUDGED, said
    assert running.returncode == 0
    assert f"sandbox: {len(verdicts) - len(NOT_JUDGED)} hold, 0 differ, {len(NOT_JUDGED)} were not judged" in said
    assert len(verdicts) > 35
    assert leftovers(sandbox, cluster) == []


@pytest.mark.sandbox
def test_an_interrupted_test_leaves_nothing_behind(sandbox: dict[str, Any], cluster: KubernetesClient) -> None:
    running = acceptance(sandbox, *QUICK)
    assert running.stdout is not None
    for line in running.stdout:
        if "save.renamed" in line:
            break
    assert leftovers(sandbox, cluster) != []
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    deadline = time.monotonic() + 20
    while leftovers(sandbox, cluster) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert leftovers(sandbox, cluster) == []


@pytest.mark.sandbox
def test_without_ground_it_says_what_there_is(sandbox: dict[str, Any], cluster: KubernetesClient) -> None:
    running = acceptance(sandbox, "--configuration=other")
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert re.search(r"CheckpointConfiguration other: not there; expected one of everstep", said)
    bare = {"metadata": {"name": "bare"}, "spec": {"nodeSelector": {"no": "such"}}}
    with pytest.raises(FindingsError, match="0 in 0 node pools; expected 2 node pools or more"):
        ground_of(cluster, bare, "default", "python")


def test_a_flat_bucket_differs(cloud_storage: Any) -> None:
    cloud_storage.post("/storage/v1/b?project=everstep", {"name": "flat-acceptance"})
    client = StorageAccess(endpoint=cloud_storage.address).open("flat-acceptance").library_client
    record = Record(lambda line: None)
    with bucket_items.scratch(client, "flat-acceptance", "tried/") as folder:
        bucket_items.judge(record, folder)
    judged = {verdict.item: verdict.judged for verdict in record.verdicts}
    assert judged["bucket.hierarchical"] is Judged.DIFFERS
    assert judged["folder.empty"] is judged["folder.rename"] is Judged.DIFFERS
    assert judged["object.create-only"] is judged["listing.checksum"] is Judged.HOLDS
    assert tally(record.verdicts).startswith(f"{sum(1 for one in judged.values() if one is Judged.HOLDS)} hold")
    assert list(client.list_blobs("flat-acceptance")) == []


def test_an_answer_of_another_form_is_a_difference_and_not_a_crash() -> None:
    record = Record(lambda line: None)
    with record.item("one", "it has a name"):
        raise KeyError("name")
    with record.item("two", "it is there") as seen:
        seen.saw("there")
    assert [str(verdict.judged) for verdict in record.verdicts] == ["differs", "holds"]
    assert "KeyError 'name'" in record.verdicts[0].seen
