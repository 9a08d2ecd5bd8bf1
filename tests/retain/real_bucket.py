"""Runs in a real bucket, for tests of sweeps: how they are laid there, and what a reader of checkpoints finds."""

from __future__ import annotations

import hashlib
import json
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.checkpoints.written_metadata import metadata_of

from everstep.clients.access import StorageAccess
from everstep.clients.storage import BucketClient
from everstep.retain.plan import RetentionPlan
from everstep.retain.planning import plan_run
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings

RUN = "lm"
NODES = 2
FILES = ("manifest.ocdbt", "d/a", "ocdbt.process_0/d/b")
DCP_FILES = ("__0_0.distcp", "__1_0.distcp")
OTHERS = frozenset({"lm2/2026-03-01_00-00/keep", "lm-old/2026-03-01_00-00/keep"})
"""Objects of runs whose names begin like this one's."""


class RealBucket:
    """A new bucket of a server, over plain HTTP."""

    def __init__(self, address: str, *, hierarchical: bool = True) -> None:
        self.address = address
        self.name = f"bucket-{uuid.uuid4().hex[:10]}"
        self.hierarchical = hierarchical
        self.call(
            "POST",
            "/storage/v1/b?project=everstep",
            {
                "name": self.name,
                "hierarchicalNamespace": {"enabled": hierarchical},
                "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
            },
        )

    def client(self) -> BucketClient:
        return StorageAccess(endpoint=self.address).open(self.name)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data, {"Content-Type": "application/json"} if data is not None else {}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def put(self, name: str, body: str | bytes = b"x") -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        path = f"/upload/storage/v1/b/{self.name}/o?{query}"
        self.call("POST", path, body.encode() if isinstance(body, str) else body)

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}")

    def hold(self, name: str, *, held: bool = True) -> None:
        path = f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}"
        self.call("PATCH", path, {"temporaryHold": held})

    def names(self, prefix: str = "") -> set[str]:
        query = urllib.parse.urlencode({"prefix": prefix})
        return {each["name"] for each in self.call("GET", f"/storage/v1/b/{self.name}/o?{query}").get("items", [])}

    def folders(self, prefix: str = "") -> set[str]:
        query = urllib.parse.urlencode({"prefix": prefix})
        found = self.call("GET", f"/storage/v1/b/{self.name}/folders?{query}")
        return {each["name"] for each in found.get("items", [])}

    def read(self, name: str) -> Any:
        return self.call("GET", f"/storage/v1/b/{self.name}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    # What trainings leave

    def run_record(self, **more: Any) -> None:
        record = {"nodes": NODES, "workers_per_node": 1, "data_parallelism": None, "lineage": "first", **more}
        self.put(f"{RUN}/everstep/run.json", json.dumps(record))

    def backup(self, name: str, step: int, *, nodes: int = NODES, run: str = RUN) -> None:
        for node in range(nodes):
            digest = digest_of(name, node)
            self.put(f"{run}/{name}/{run}-s{step}-n{node}-w0.meta", digest)
            for file in FILES:
                self.put(f"{run}/{name}/{digest}.data/{file}", f"{name} {node} {file}")

    def save(self, step: int) -> None:
        for file in ("_CHECKPOINT_METADATA", "default/manifest.ocdbt", "default/d/a", "commit_success.txt"):
            self.put(f"{RUN}/checkpoints/{step}/{file}", f"{step} {file}")

    def dcp(self, step: int) -> None:
        """A save of PyTorch's distributed checkpoints by two ranks."""
        for file in DCP_FILES:
            self.put(f"{RUN}/checkpoints/{step}/{file}", f"{step} {file}")
        sizes = ((file, 0, len(f"{step} {file}")) for file in DCP_FILES)
        self.put(f"{RUN}/checkpoints/{step}/.metadata", metadata_of(sizes))

    def history(self, backups: int = 5, saves: int = 0) -> None:
        """A run with a backup a day from 1 March on, saves of some steps, and neighbours with similar names."""
        self.run_record()
        for name in OTHERS:
            self.put(name)
        for number in range(backups):
            self.backup(f"2026-03-0{number + 1}_00-00", 100 * (number + 1))
        for number in range(saves):
            self.save(1000 * (number + 1))

    # What readers find

    def dated(self) -> set[str]:
        """Dated folders that hold anything."""
        return {name.split("/")[1] for name in self.names(f"{RUN}/2026-")}

    def torn(self) -> list[str]:
        """Checkpoints that a reader would take, though bytes of them are missing."""
        found = []
        names = self.names(f"{RUN}/")
        for name in self.dated():
            here = {each for each in names if each.startswith(f"{RUN}/{name}/")}
            metas = {each.rpartition("/")[2] for each in here}
            tops = {each.split("/")[2] for each in here}
            takes = all(
                any(f"-n{node}-w0.meta" in each for each in metas) and f"{digest_of(name, node)}.data" in tops
                for node in range(NODES)
            )
            whole = all(
                f"{RUN}/{name}/{digest_of(name, node)}.data/{file}" in here for node in range(NODES) for file in FILES
            )
            if takes and not whole:
                found.append(name)
        for name in {each.split("/")[2] for each in names if each.startswith(f"{RUN}/checkpoints/")}:
            here = {each.removeprefix(f"{RUN}/checkpoints/{name}/") for each in names}
            if "commit_success.txt" in here and not {"_CHECKPOINT_METADATA", "default/d/a"} <= here:
                found.append(f"checkpoints/{name}")
            if ".metadata" in here and not here.issuperset(DCP_FILES):
                found.append(f"checkpoints/{name}")
        return found

    def plan(self, keep_last: int = 2, now: datetime | None = None, **more: Any) -> RetentionPlan:
        """A plan that sweeps all but the newest; all there is counts as old."""
        now = now or datetime.now(UTC) + timedelta(days=2)
        return plan_run(self.client(), RUN, Policy({}, keep_last=keep_last), now=now, settings=Settings(**more))


def digest_of(name: str, node: int) -> str:
    return "D" + hashlib.sha256(f"{name} {node}".encode()).hexdigest()


def trash_of(names: Iterable[str]) -> set[str]:
    """The trash folders among objects' names."""
    return {each.split("/")[1] for each in names if each.split("/")[1].startswith(".trash-")}
