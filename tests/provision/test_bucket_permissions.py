"""IAM rights on the bucket suffice for each identity's work, and none is idle: given one by one, as they are missed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.doctor.evidence import Target
from everstep.doctor.gather import Sources, gather
from everstep.launch.launcher import Launcher
from everstep.launch.lease import LeaseKeeper
from everstep.provision import preflight, priority_classes
from everstep.provision.permissions import IDENTITIES
from everstep.provision.preflight import Subject
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep_sandbox.google.state import PROJECT
from everstep_sandbox.stack.furnish import request
from everstep_trainer.bucket import Bucket

pytestmark = pytest.mark.sandbox

NAME = "acme-checkpoints"
# Google asks for it where a listing shows empty folders; the sandbox does not.
UNSEEN = {"storage.folders.list"}


class Gate:
    """A bucket of its own, at an address whose caller has the rights that were given so far."""

    def __init__(self, directory: Path, address: str, identity: str) -> None:
        self.granted: set[str] = set()
        self._role = f"projects/{PROJECT}/roles/{identity}"
        self._state = directory / "google" / "state.json"
        self.allowed = set(IDENTITIES[identity].bucket)
        self._give()
        bucket = {"name": NAME, "hierarchicalNamespace": {"enabled": True}}
        uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
        request("POST", f"{address}/storage/v1/b?project={PROJECT}", {**bucket, **uniform})
        account = f"{identity}@everstep.iam.gserviceaccount.com"
        policy = request("GET", f"{address}/storage/v1/b/{NAME}/iam")
        policy["bindings"].append({"role": self._role, "members": [f"serviceAccount:{account}"]})
        request("PUT", f"{address}/storage/v1/b/{NAME}/iam", policy)
        self.door = str(request("POST", f"{address}/_sandbox/doors", {"identity": account})["address"])

    def pass_through(self, work: Callable[[str], str]) -> None:
        """Do the work again and again, each time with the right that it missed, until it misses none.

        :param work: returns what was refused, or nothing
        """
        while refused := work(self.door):
            missed = (set(re.findall(r"storage\.\w+\.\w+", refused)) & self.allowed) - self.granted
            assert missed, refused
            self.granted |= missed
            self._give()
        assert self.granted == self.allowed - UNSEEN

    def _give(self) -> None:
        self._state.parent.mkdir(exist_ok=True)
        role = {"includedPermissions": sorted(self.granted)}
        self._state.write_text(json.dumps({"project": PROJECT, "roles": {self._role: role}, "policies": {}}))


@contextmanager
def gate(directory: Path, identity: str) -> Iterator[Gate]:
    with server("everstep_sandbox.storage", directory / "storage", "--sandbox", str(directory)) as storage:
        yield Gate(directory, storage.address, identity)


def refused(act: Callable[[], Any]) -> str:
    """What was refused while something was done."""
    try:
        act()
    except Exception as failure:
        if "storage." in str(failure):
            return str(failure)
        raise
    return ""


def test_the_launcher(
    tmp_path: Path, bare_kubernetes: Any, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    run_data["name"] = "rights-of-launcher"
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = NAME
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as cluster:
        for name, value in spec.cluster_spec.priorities.items():
            priority_classes.create(cluster, name, value)

        def work(door: str) -> str:
            bucket = StorageAccess(endpoint=door).open(NAME)
            told = [str(each) for each in preflight.check(Subject(spec, cluster, bucket, "me"))]
            denied = [each for each in told if "does not have storage." in each]
            # Preflight is silent on a policy that it may not read; the doctor says so.
            evidence = gather(Target.of_run(spec), Sources(bucket=lambda _: bucket))
            denied += [why for why in evidence.unread.values() if "does not have storage." in why]
            return "".join(denied[:1]) or refused(lambda: launched(bucket))

        def launched(bucket: Any) -> None:
            Launcher(spec, cluster, bucket, "me").launch()
            LeaseKeeper(bucket, cluster, spec.name, "me").release()

        with gate(tmp_path, "launcher") as passed:
            passed.pass_through(work)


def test_the_watcher(tmp_path: Path, run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    folder = RunFolder(NAME, spec.name)

    def work(door: str) -> str:
        bucket = StorageAccess(endpoint=door).open(NAME)
        return refused(
            lambda: (
                bucket.run(run_folder.progress(folder, with_run_record=True)),
                bucket.run(run_folder.contents(folder, spec.shape, everything=False)),
            )
        )

    with gate(tmp_path, "watcher") as passed:
        passed.pass_through(work)


def test_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(door: str) -> str:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", door)
        return refused(reported)

    def reported() -> None:
        bucket = Bucket(NAME)
        # A report is written again and again, a durable save listed and an old one deleted.
        for _ in range(2):
            bucket.write("lm/everstep/status.json", b"{}")
        assert bucket.read("lm/everstep/status.json") is not None
        assert bucket.list_level("lm/").folders == ("everstep",)
        bucket.delete("lm/everstep/status.json")

    with gate(tmp_path, "trainer") as passed:
        passed.pass_through(work)
