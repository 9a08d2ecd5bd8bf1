"""Nodes with multi-tier checkpointing and no Kubernetes: drivers, replicators and the rank server as processes.

For tests and experiments that run real training processes on "nodes" of this machine.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from everstep_sandbox.checkpointing.driver import SOCKET, Settings
from everstep_sandbox.checkpointing.ramdisk import RamDisk, remove
from everstep_sandbox.checkpointing.rank_server import JobShape, RankServer
from everstep_sandbox.checkpointing.web import call

_START_SECONDS = 20.0


@dataclass(frozen=True)
class Mount:
    """A pod's place on a node: `directory` is its checkpoint volume, `address` its own loopback address."""

    node: str
    directory: Path
    address: str
    slice_index: int
    node_index: int
    pod_uid: str


class StandaloneNodes:
    """`count` nodes (node-0, node-1, …), `pool_size` of them to a pool, over one bucket of a storage server.

    A context manager: on leaving it no process of it is left. `launch` is what the JobSet controller and the kubelet
    do for an attempt; ranks come from the real rank server, so the files on the RAM disks are the real ones.
    """

    def __init__(self, directory: Path, storage_url: str, bucket: str, count: int, *, pool_size: int = 1) -> None:
        self.names = [f"node-{number}" for number in range(count)]
        self._directory = directory
        self._storage_url = storage_url
        self._bucket = bucket
        self._pools = {name: f"pool-{number // pool_size}" for number, name in enumerate(self.names)}
        self._network = f"127.{random.randint(64, 250)}.{random.randint(0, 250)}"
        self._shapes: dict[str, JobShape] = {}
        self._drivers: dict[str, subprocess.Popen[bytes]] = {}
        self._mounts: list[Mount] = []
        self._pods = 0
        self.rank_log: list[str] = []
        self._ranks = RankServer(self._shape_of, self._pools.get, log=self.rank_log.append)

    def __enter__(self) -> StandaloneNodes:
        self._ranks.start()
        self.start(*self.names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(*list(self._drivers))
        self._ranks.stop()

    def start(self, *nodes: str) -> None:
        """Starts the drivers of nodes and waits until they serve their volumes."""
        for node in nodes:
            settings = self._settings(node)
            settings.node_directory.mkdir(parents=True, exist_ok=True)
            (settings.node_directory / SOCKET).unlink(missing_ok=True)
            with self.log(node).open("ab") as log:
                self._drivers[node] = subprocess.Popen(
                    [sys.executable, "-m", "everstep_sandbox.checkpointing.driver"],
                    env={**os.environ, **settings.environment(), "DIE_WITH": str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        deadline = time.monotonic() + _START_SECONDS
        for node in nodes:
            while not (self.node_directory(node) / SOCKET).exists():
                if time.monotonic() > deadline or self._drivers[node].poll() is not None:
                    raise TimeoutError(f"The driver of {node} does not start: {self.log(node).read_text()}")
                time.sleep(0.02)

    def stop(self, *nodes: str) -> None:
        """Kills drivers with their replicators and coordinators; files stay."""
        stopped = [self._drivers.pop(node) for node in nodes if node in self._drivers]
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
        for process in stopped:
            process.wait()

    def wait_for_driver(self, node: str) -> int:
        """The exit code of a driver that ends by itself. Raises subprocess.TimeoutExpired when it does not."""
        return self._drivers[node].wait(_START_SECONDS)

    def launch(
        self,
        jobset: str,
        *,
        slices: int,
        nodes_per_slice: int,
        attempt: int = 0,
        placement: Sequence[str] | None = None,
    ) -> list[Mount]:
        """Mounts the volume for each pod of an attempt, in the order of the JobSet's indexes.

        `placement` names the nodes in that order (default: the first ones). Earlier mounts are unmounted first. The
        rank and coordinator of each pod appear in its `jax-init-info.txt`.
        """
        self.unmount()
        count = slices * nodes_per_slice
        placed = list(placement or self.names[:count])
        self._shapes.setdefault(jobset, JobShape(uuid.uuid4().hex, slices, nodes_per_slice))
        for number, node in enumerate(placed):
            self._pods += 1
            slice_index, node_index = divmod(number, nodes_per_slice)
            pod_uid = uuid.uuid4().hex
            address = f"{self._network}.{100 + self._pods % 150}"
            labels = {
                "jobset.sigs.k8s.io/jobset-name": jobset,
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
                "jobset.sigs.k8s.io/job-index": str(slice_index),
            }
            pod = {
                "namespace": "default",
                "name": f"{jobset}-slice-{slice_index}-{node_index}-{pod_uid[:5]}",
                "uid": pod_uid,
                "labels": labels,
                "annotations": {"batch.kubernetes.io/job-completion-index": str(node_index)},
            }
            answer = self._call(node, "/publish", {"pod": pod, "pod_ip": address, "volume": "checkpoint"})
            directory = Path(json.loads(answer)["path"])
            self._mounts.append(Mount(node, directory, address, slice_index, node_index, pod_uid))
        return list(self._mounts)

    def unmount(self) -> None:
        """Unmounts all volumes, as when an attempt's pods are gone."""
        for mount in self._mounts:
            if mount.node in self._drivers:
                self._call(mount.node, "/unpublish", {"pod_uid": mount.pod_uid})
        self._mounts.clear()

    def replace(self, *nodes: str) -> None:
        """New nodes of the same names: nothing on them, RAM disk and remembered rank included."""
        self.stop(*nodes)
        for node in nodes:
            shutil.rmtree(self.node_directory(node), ignore_errors=True)
        self.start(*nodes)

    def wipe_ram(self, *nodes: str) -> None:
        """The nodes stay, their RAM disks lose all."""
        self.stop(*nodes)
        for node in nodes:
            remove(self.node_directory(node) / "ramdisk")
        self.start(*nodes)

    def ram_disk(self, node: str) -> Path:
        """What a pod on the node sees as its volume."""
        return RamDisk(self.node_directory(node)).client

    def node_directory(self, node: str) -> Path:
        return self._directory / "nodes" / node

    def log(self, node: str) -> Path:
        """What driver, replicator and coordinator of a node wrote."""
        logs = self._directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return logs / f"driver-{node}.log"

    def _shape_of(self, namespace: str, jobset: str) -> JobShape | None:
        return self._shapes.get(jobset)

    def _settings(self, node: str) -> Settings:
        number = self.names.index(node)
        return Settings(
            node=node,
            address=f"{self._network}.{number + 1}",
            directory=self._directory,
            ranks_url=self._ranks.url,
            bucket=self._bucket,
            storage_url=self._storage_url,
        )

    def _call(self, node: str, path: str, document: Mapping[str, object]) -> str:
        connection = _UnixConnection(self.node_directory(node) / SOCKET)
        connection.request("POST", path, json.dumps(document).encode())
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        if response.status != 200:
            raise OSError(f"{node}: {body}")
        return body


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, whatever the length of its path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        directory = os.open(self._path.parent, os.O_PATH)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def create_bucket(storage_url: str, name: str, *, hierarchical: bool = True) -> None:
    """Makes a bucket as provisioning does. Raises WebError when it exists."""
    document = {
        "name": name,
        "hierarchicalNamespace": {"enabled": hierarchical},
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
    }
    call("POST", f"{storage_url}/storage/v1/b?project=sandbox", document=document)
