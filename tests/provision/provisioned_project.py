"""An empty project that `everstep provision` prepares as a process that can be killed, and what is there afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.sandbox.google.empty_project import CLUSTERS, DRIVERS, Object, Project

from everstep_sandbox.google.state import PROJECT
from everstep_sandbox.stack.furnish import request

MANIFEST = Path(__file__).parents[2] / "dags" / "clusters" / "manifests" / "jobset-sandbox.yaml"
KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/ring/cryptoKeys/checkpoints"
CLUSTER_FILE: Object = {
    "name": "tokyo",
    "project": PROJECT,
    "location": "us-east5-a",
    "kubernetes_connection": "tokyo",
    "pools": {
        "v6e": {
            "accelerator": "tpu-v6e-slice",
            "topology": "2x4",
            "machine_type": "ct6e-standard-4t",
            "chips_per_node": 4,
            "nodes_per_slice": 2,
            "slices": 1,
        }
    },
    "checkpoint_configurations": {
        "v6e": {"bucket": "acme-checkpoints", "machine_type": "ct6e-standard-4t", "in_memory_volume_size": "64Mi"}
    },
    "buckets": {"acme-checkpoints": {"kms_key": KEY}},
    "priorities": {"training-high": 2000000},
    "jobset": {"manifest": str(MANIFEST)},
    "gke": {"system_nodes": {"count": 1}},
}
# What provisioning asks of the cluster's API; nodes, pods and leases are others' business.
KINDS = {
    "/api/v1/namespaces",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apps/v1/namespaces/jobset-system/deployments",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/checkpointing.gke.io/v1/checkpointconfigurations",
}
_CHANGES = "(POST|PUT|PATCH|DELETE)"
# Made anew with each object, or with each change of it.
_OWN = (
    {"id", "etag", "selfLink", "endpoint", "masterAuth", "createTime", "instanceGroupUrls", "timeCreated", "updated"}
    | {"effectiveTime", "uid", "resourceVersion", "creationTimestamp", "managedFields", "status", "deployment"}
    | {"deployment.kubernetes.io/revision"}
)


class ProvisionedProject(Project):
    """A project with one cluster file for it, both below a directory."""

    def __init__(self, directory: Path, cluster: str = "tokyo") -> None:
        super().__init__(directory / "sandbox")
        self.cluster = f"{CLUSTERS}/{cluster}"
        self.file = directory / "dags" / "clusters" / f"{cluster}.yaml"
        self._logs = [_Log(self.directory / name) for name in ("google/calls.jsonl", "storage/calls.jsonl")]
        self._writes = _Log(self.directory / "writes.jsonl")

    def begin(self, changes: Object | None = None) -> None:
        """Write the cluster file, and start an empty project.

        :param changes: to the cluster file
        """
        self.file.parent.mkdir(parents=True)
        self.file.write_text(yaml.safe_dump({**CLUSTER_FILE, **(changes or {})}))
        self.up()

    def up(self, *, speed: int = 60) -> None:
        """Start an empty project, and make the key known."""
        self.command("up", "--empty", f"--speed={speed}")
        request("POST", f"{self.record.google}/_sandbox/keys", {"name": KEY})

    def words(self, mode: str) -> list[str]:
        """The command that prepares it."""
        return ["provision", str(self.file), "--mode", mode, "--kubeconfig", str(self.directory / "kubeconfig")]

    def environment(self) -> dict[str, str]:
        """What that command needs to find the project."""
        return {"EVERSTEP_GOOGLE_ENDPOINT": self.record.google, "STORAGE_EMULATOR_HOST": self.record.storage}

    def provision(self, mode: str = "apply") -> str:
        """Run it to its end, which has to be a good one, and return what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "everstep.cli.main", *self.words(mode)],
            env={**os.environ, **self.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def delay_answers(self, seconds: float = 0.7) -> None:
        """From now on, what changes something is answered late."""
        late = {"times": 10_000, "delay_ms": 1000 * seconds, "after": True}
        addresses = {
            self.record.google: f"^{_CHANGES} /v[0-9](?!.*:getIamPolicy)",
            self.record.storage: f"^{_CHANGES} /storage/v1/b",
        }
        if self.record.kubernetes:
            paths = "|".join([*sorted(KINDS), "/api/v1/namespaces/default/pods"])
            addresses[self.record.kubernetes] = f"^{_CHANGES} ({paths})(/[^/?]+)?([?].*)?$"
        for address, match in addresses.items():
            request("DELETE", f"{address}/_sandbox/faults")
            request("POST", f"{address}/_sandbox/faults", {**late, "match": match})

    def answer_at_once(self) -> None:
        """Undo `delay_answers`."""
        for address in (self.record.google, self.record.storage, self.record.kubernetes):
            if address:
                request("DELETE", f"{address}/_sandbox/faults")

    def calls(self) -> list[str]:
        """Every change that was asked of Google's APIs and of buckets, and that Everstep has made in the cluster."""
        found = [f"{call['method']} {call['path']}" for log in self._logs for call in log.entries()]
        writes = [write for write in self._writes.entries() if write["userAgent"] == "everstep"]
        return found + [f"{write['verb']} {write['resource']} {write['name']}" for write in writes]

    def requests(self) -> dict[str, int]:
        """How often the cluster's API was asked, also in vain, to change what provisioning changes."""
        counted = request("GET", f"{self.record.kubernetes}/_sandbox/requests")["requests"]
        kinds = {path.rpartition("/")[2] for path in KINDS}
        asked = {what: times for what, times in counted.items() if what.split()[1].partition("/")[0] in kinds}
        return {what: times for what, times in asked.items() if not what.startswith(("GET", "WATCH"))}

    def state(self) -> Object:
        """Everything that is there, without what is another one in every project: identifiers and times."""
        buckets = self.storage("GET", f"/b?project={PROJECT}")["items"]
        found: Object = {
            "services": self.google("GET", f"/v1/projects/{PROJECT}/services?filter=state:ENABLED"),
            "cluster": self.google("GET", self.cluster),
            "buckets": {bucket["name"]: [bucket, self.policy(bucket["name"])] for bucket in buckets},
            "nodes": sorted(self.nodes()),
            "ready drivers": self.ready_drivers(),
            "drivers": len(self.kubernetes("GET", DRIVERS)["items"]),
        }
        if KEY in self.file.read_text():
            found["key"] = self.google("GET", f"/v1/{KEY}:getIamPolicy")
        for path in sorted(KINDS):
            found[path] = {item["metadata"]["name"]: item for item in self.kubernetes("GET", path)["items"]}
        return _without_own(found)

    def policy(self, bucket: str) -> Object:
        """The IAM policy of a bucket."""
        return self.storage("GET", f"/b/{bucket}/iam?optionsRequestedPolicyVersion=3")


class _Log:
    """A file of JSON lines that grows; what was read is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._entries: list[Object] = []

    def entries(self) -> list[Object]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            self._read += len(whole)
            self._entries += [json.loads(line) for line in whole.splitlines()]
        return self._entries


def _without_own(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_own(value) for key, value in found.items() if key not in _OWN}
    if isinstance(found, list):
        return [_without_own(each) for each in found]
    return found
