"""A launch that is killed (SIGKILL) after each of its steps: the retry goes on or attaches, and never makes a second
JobSet."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from everstep.checkpoints.layout import RunFolder
from everstep.launch import labels

pytestmark = pytest.mark.sandbox

HOLDER = "one-task"
# Launches in a process of its own, which ends itself right after the named change of cluster or bucket was made.
KILLED_AFTER = """
import json, os, signal, sys
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.storage import BucketClient
from everstep.launch.launcher import Launcher
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec

given = json.load(sys.stdin)

def fatal(kind, method, is_it):
    act = getattr(kind, method)
    def acting(self, what, *arguments, **options):
        done = act(self, what, *arguments, **options)
        if is_it(what, *arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(kind, method, acting)

step = given["step"]
if step in ("create", "delete"):
    fatal(KubernetesClient, step, lambda *_: True)
else:
    name, bound = {"lease": ("lease.json", False), "record": ("run.json", False), "bind": ("lease.json", True)}[step]
    fatal(
        BucketClient,
        "write",
        lambda what, document, *_: what.endswith(name) and (not bound or document["jobset"] is not None),
    )
spec = TrainingSpec.model_validate(given["run"]).on(ClusterSpec.model_validate(given["cluster"]))
cluster = ClusterAccess.of_kubeconfig(given["kubeconfig"]).open()
Launcher(spec, cluster, StorageAccess(endpoint=given["storage"]).open(spec.bucket), given["holder"]).launch()
"""


def launch_killed_after(step: str, world: Any, kubernetes: Any, storage: Any) -> None:
    given = {
        "step": step,
        "run": world.spec.model_dump(mode="json"),
        "cluster": world.spec.cluster_spec.model_dump(mode="json"),
        "kubeconfig": str(kubernetes.kubeconfig),
        "storage": storage.address,
        "holder": HOLDER,
    }
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER],
        input=json.dumps(given),
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def created(kubernetes: Any, name: str) -> int:
    writes = [json.loads(line) for line in (kubernetes.directory / "writes.jsonl").read_text().splitlines()]
    return sum(1 for each in writes if (each["verb"], each["resource"], each["name"]) == ("create", "jobsets", name))


def assert_bound(world: Any) -> None:
    """Cluster, lease and run.json agree on one JobSet."""
    folder = RunFolder(world.bucket.name, world.spec.name)
    jobset = world.jobset()["metadata"]
    lease = json.loads(world.bucket.read(folder.lease).body)
    record = json.loads(world.bucket.read(folder.run_record).body)
    assert (lease["holder"], lease["jobset"]["uid"]) == (HOLDER, jobset["uid"])
    assert str(record["launch"]) == jobset["annotations"][labels.LAUNCH]


@pytest.mark.parametrize("step", ["lease", "record", "create", "bind"])
def test_a_first_launch(step: str, world: Any, bare_kubernetes: Any, cloud_storage: Any) -> None:
    launch_killed_after(step, world, bare_kubernetes, cloud_storage)
    made_before = created(bare_kubernetes, world.spec.name)
    assert made_before == (1 if step in ("create", "bind") else 0)
    world.launcher(HOLDER).launch()
    assert created(bare_kubernetes, world.spec.name) == 1
    assert_bound(world)


@pytest.mark.parametrize("step", ["delete", "record", "create"])
def test_one_that_replaces_a_failed_jobset(step: str, world: Any, bare_kubernetes: Any, cloud_storage: Any) -> None:
    first = world.launcher(HOLDER).launch()
    world.end("Failed")
    launch_killed_after(step, world, bare_kubernetes, cloud_storage)
    again = world.launcher(HOLDER).launch()
    assert again.state.uid != first.state.uid
    assert created(bare_kubernetes, world.spec.name) == 2
    assert_bound(world)
