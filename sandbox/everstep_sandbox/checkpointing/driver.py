"""The driver of one node: serves the volume to the kubelet and keeps the node's replicator running.

``python -m everstep_sandbox.checkpointing.driver``, settings from the environment as the DaemonSet gives them:
NODE_NAME, POD_IP, SANDBOX_DIRECTORY, RANK_SERVER, BUCKET, STORAGE_EMULATOR_HOST (and DIE_WITH, the parent's process
id, where the driver shall not outlive it). The replicator is restarted in place ten times; after that the driver
fails, as the real container does, and whoever runs it starts it again. SIGTERM means that the pod goes,
and the RAM disk with it; a driver that crashes leaves it as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from everstep_sandbox.checkpointing.ramdisk import RamDisk, remove
from everstep_sandbox.checkpointing.volume import Volume
from everstep_sandbox.parent import die_with_parent

SOCKET = "csi.sock"
IN_PLACE_RESTARTS = 10


@dataclass(frozen=True)
class Settings:
    """Where a driver works: its node, the node's own loopback address, and whom it talks to."""

    node: str
    address: str
    directory: Path
    ranks_url: str
    bucket: str
    storage_url: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Raises KeyError for a variable that is missing."""
        return cls(
            node=environment["NODE_NAME"],
            address=environment["POD_IP"],
            directory=Path(environment["SANDBOX_DIRECTORY"]),
            ranks_url=environment["RANK_SERVER"],
            bucket=environment["BUCKET"],
            storage_url=environment["STORAGE_EMULATOR_HOST"],
        )

    def environment(self) -> dict[str, str]:
        """The variables that `of` reads."""
        return {
            "NODE_NAME": self.node,
            "POD_IP": self.address,
            "SANDBOX_DIRECTORY": str(self.directory),
            "RANK_SERVER": self.ranks_url,
            "BUCKET": self.bucket,
            "STORAGE_EMULATOR_HOST": self.storage_url,
        }

    @property
    def node_directory(self) -> Path:
        return self.directory / "nodes" / self.node


class Driver:
    """Volumes of the node's pods, and the replicator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._volumes: dict[str, Volume] = {}
        self._lock = threading.Lock()
        RamDisk(settings.node_directory).client.mkdir(parents=True, exist_ok=True)

    def publish(self, document: dict[str, Any]) -> dict[str, Any]:
        """The host path of a pod's volume. Publishing it again for the same pod changes nothing."""
        pod = document["pod"]
        with self._lock:
            if pod["uid"] in self._volumes:
                return {"path": str(RamDisk(self._settings.node_directory).client)}
            volume = Volume(self._settings.node_directory, self._settings.node, self._settings.ranks_url)
            self._volumes[pod["uid"]] = volume
            return {"path": str(volume.publish(pod, document["pod_ip"]))}

    def unpublish(self, document: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            volume = self._volumes.pop(document["pod_uid"], None)
        if volume is not None:
            volume.unpublish()
        return {}

    def run_replicator(self) -> None:
        """Returns when the replicator has ended once more than it may be restarted."""
        for restart in range(IN_PLACE_RESTARTS + 1):
            started = time.monotonic()
            code = self._replicator().wait()
            print(f"Replicator ended with {code}; in-place restarts so far: {restart}", flush=True)  # noqa: T201
            if code != 0 and time.monotonic() - started < 1:
                time.sleep(1)

    def _replicator(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "everstep_sandbox.checkpointing.replicator",
                f"--node-directory={settings.node_directory}",
                f"--address={settings.address}",
                f"--storage={settings.storage_url}",
                f"--bucket={settings.bucket}",
                f"--ranks={settings.ranks_url}",
                f"--parent={os.getpid()}",
            ],
            stdin=subprocess.DEVNULL,
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    driver: Driver

    def do_POST(self) -> None:
        actions = {"/publish": self.driver.publish, "/unpublish": self.driver.unpublish}
        try:
            document = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            status, answer = 200, json.dumps(actions[self.path](document))
        except (KeyError, ValueError, OSError) as problem:
            status, answer = 500, f"{self.path} failed: {type(problem).__name__}: {problem}"
        body = answer.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "kubelet"

    def log_message(self, *arguments: object) -> None:
        """Calls of the kubelet are not worth a line each."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def serve(settings: Settings) -> None:
    """Serves the socket and runs the replicator; ends the process with 1 when that has failed too often."""
    driver = Driver(settings)
    path = settings.node_directory / SOCKET
    path.unlink(missing_ok=True)
    # A socket's path may have 107 bytes at most; through the open directory it has few.
    directory = os.open(settings.node_directory, os.O_PATH)
    handler = type("Handler", (_Handler,), {"driver": driver})
    server = _Server(f"/proc/self/fd/{directory}/{SOCKET}", handler)
    threading.Thread(target=server.serve_forever, args=(0.5,), daemon=True).start()
    print(f"Driver of {settings.node} serves {SOCKET}; bucket {settings.bucket}", flush=True)  # noqa: T201

    def end(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        # The RAM disk belongs to the driver's pod: it goes with it, as when a configuration is made anew.
        remove(settings.node_directory / "ramdisk")
        # The kernel ends the replicator and its coordinator with this process.
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    driver.run_replicator()
    path.unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    if "DIE_WITH" in os.environ:
        die_with_parent(int(os.environ["DIE_WITH"]))
    serve(Settings.of(os.environ))
