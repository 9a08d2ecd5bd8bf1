"""`python -m everstep_sandbox.stack.supervisor`: starts the sandbox's parts, keeps their record, ends them with itself.

SIGHUP starts what is missing; SIGTERM ends everything. A part that dies is not started again by itself: a test that
kills it wants to see it dead, and `everstep sandbox up` brings it back.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everstep_sandbox import nodes
from everstep_sandbox.google import cluster_file
from everstep_sandbox.google.cluster_file import ClusterFile
from everstep_sandbox.kubelet.process import kill_marked
from everstep_sandbox.kubernetes import kubeconfig as kubeconfig_file
from everstep_sandbox.stack import furnish, parts, record, sweep
from everstep_sandbox.stack.parts import Part, PartError

logger = logging.getLogger(__name__)

Report = Callable[[str], None]

READY = "ready"
"""The last line of a successful start's report."""

CONTROL_PLANES = {"sandbox": "everstep_sandbox.kubernetes", "real": "everstep_sandbox.controlplane"}
"""The modules that serve the Kubernetes API under the sandbox's nodes."""

_CLUSTER_PARTS = ("checkpointing", "kubelet", "control-plane")
_CONTROL_PLANE_SECONDS = 180.0
_GRACE_SECONDS = 5.0
_SIGNALS = {signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


@dataclass(frozen=True, slots=True)
class Settings:
    """What `up` was asked for; bucket names and speed are the sandbox's for its whole life."""

    directory: Path
    slices: int
    hosts: int
    speed: float
    bucket: str
    storage_port: int = 0
    """0 takes the port that the storage had last, or any."""
    controlplane: str = "sandbox"
    """`sandbox`, or `real` for the programs that `make controlplane` builds."""
    empty: bool = False
    """An empty project instead of a furnished cluster; `slices` and `hosts` are 0 then."""


class Supervisor:
    """Parts in the order in which they need each other."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = settings.directory
        self._parts: dict[str, Part] = {}
        self._addresses: dict[str, str] = {}

    def start_missing(self, report: Report) -> None:
        """Starts every part that does not run and waits until the whole sandbox is ready; raises PartError."""
        directory, settings = self._directory, self._settings
        machines = directory / "machines.json"
        if not settings.empty and not machines.exists():
            nodes.save(machines, nodes.plan(settings.slices, settings.hosts))
        storage_port, google_port = directory / "storage.port", directory / "google.port"
        storage = self._ensure(
            "storage",
            "everstep_sandbox.storage",
            storage_port,
            "--directory",
            str(directory / "storage"),
            "--port",
            str(settings.storage_port),
            "--port-file",
            str(storage_port),
            "--sandbox",
            str(directory),
        )
        furnishes = not settings.empty and not (directory / "google").exists()
        google = self._ensure(
            "google",
            "everstep_sandbox.google",
            google_port,
            "--directory",
            str(directory),
            "--port-file",
            str(google_port),
            "--speed",
            f"{settings.speed:g}",
            "--sandbox" if settings.empty else "--furnished",
        )
        if furnishes or cluster_file.read(directory) is not None:
            self._ensure_control_plane()
        self._addresses["storage"] = f"http://127.0.0.1:{storage.wait_for(storage_port)}"
        report(f"Cloud Storage at {self._addresses['storage']}")
        self._addresses["google"] = f"http://127.0.0.1:{google.wait_for(google_port)}"
        report(f"Google Cloud at {self._addresses['google']}")
        cluster = cluster_file.read(directory)
        if cluster is None:
            self._clear_cluster()
            report("a project without a cluster")
        else:
            if not machines.exists():
                # Clearing up after a cluster that is no more may have met the first steps of this one.
                nodes.save(machines, [])
            self._start_cluster(cluster, report)
        self._write_record()

    def _start_cluster(self, cluster: ClusterFile, report: Report) -> None:
        directory, settings = self._directory, self._settings
        api = self._ensure_control_plane()
        api.wait_for(directory / "kubernetes.port", _CONTROL_PLANE_SECONDS)
        server = kubeconfig_file.read(directory / "kubeconfig").server
        if self._addresses.get("kubernetes", server) != server:
            # Somebody has taken its port meanwhile: these would go on asking at the old one.
            self._end("kubelet", "checkpointing")
        self._addresses["kubernetes"] = server
        report(f"Kubernetes at {self._addresses['kubernetes']}")
        kubeconfig, door = str(directory / "kubeconfig"), directory / "kubelet.port"
        common = ("--directory", str(directory), "--kubeconfig", kubeconfig, "--speed", f"{settings.speed:g}")
        kubelet = self._ensure(
            "kubelet",
            "everstep_sandbox.kubelet",
            door,
            *common,
            "--storage",
            self._addresses["storage"],
            "--port-file",
            str(door),
            *self._log_serving(),
        )
        if cluster.checkpointing:
            self._ensure("checkpointing", "everstep_sandbox.checkpointing.controller", None, *common)
        else:
            self._end("checkpointing")
            self._parts.pop("checkpointing", None)
        waits = furnish.Cluster(directory / "kubeconfig", self._check_alive)
        if cluster.furnished and cluster.checkpointing:
            furnish.ensure_bucket(self._addresses["storage"], settings.bucket, cluster.driver_principal)
            waits.ensure_checkpoint_configuration(settings.bucket)
        self._addresses["kubelet"] = f"http://127.0.0.1:{kubelet.wait_for(door)}"
        present = [machine for machine in nodes.load(directory / "machines.json") if machine.state == "running"]
        waits.wait_for_nodes([machine.name for machine in present])
        report(f"{len(present)} nodes Ready: " + ", ".join(sorted({machine.pool for machine in present})))
        if cluster.furnished and cluster.checkpointing:
            slices = [machine for machine in present if machine.kind is None]
            waits.wait_for_drivers([machine.directory(directory) for machine in slices])
            report("checkpoint drivers Ready")

    def _ensure_control_plane(self) -> Part:
        port_file = self._directory / "kubernetes.port"
        return self._ensure(
            "control-plane",
            CONTROL_PLANES[self._settings.controlplane],
            port_file,
            "--directory",
            str(self._directory),
            "--port-file",
            str(port_file),
            "--speed",
            f"{self._settings.speed:g}",
            *(("--bare",) if self._settings.empty else ()),
        )

    def _clear_cluster(self) -> None:
        """Ends what runs of a cluster that is no more, and forgets its objects and machines."""
        self._end(*_CLUSTER_PARTS)
        for name in _CLUSTER_PARTS:
            self._parts.pop(name, None)
        for name in ("kubernetes", "kubelet"):
            self._addresses.pop(name, None)
        for name in ("kubernetes", "nodes", "checkpointing"):
            shutil.rmtree(self._directory / name, ignore_errors=True)
        for name in ("kubeconfig", "machines.json", "kubernetes.port", "kubelet.port", "writes.jsonl"):
            (self._directory / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends all parts and whatever they have left."""
        with contextlib.suppress(FileNotFoundError):
            record.path(self._directory).unlink()
        deadline = time.monotonic() + _GRACE_SECONDS
        for part in self._parts.values():
            part.process.terminate()
        for part in self._parts.values():
            part.end_by(deadline)
        self._parts.clear()
        sweep.kill_all(self._directory)

    def _end(self, *names: str) -> None:
        running = [part for name in names if (part := self._parts.get(name)) is not None and part.is_alive()]
        for part in running:
            part.process.terminate()
        for part in running:
            part.end_by(time.monotonic() + _GRACE_SECONDS)

    def reap(self) -> None:
        """Notes which parts have ended."""
        for part in self._parts.values():
            if part.process.returncode is None and not part.is_alive():
                logger.warning("%s has ended with exit code %s", part.name, part.process.returncode)
                if part.name == "kubelet":
                    # Containers end with their kubelet; what they had started is ended here.
                    kill_marked(f"{self._directory}|")

    def _log_serving(self) -> tuple[str, ...]:
        """Flags by which the kubelet serves logs; the sandbox's own API server reads them from their files."""
        if self._settings.controlplane == "sandbox":
            return ()
        from everstep_sandbox.controlplane.credentials import Credentials

        own = Credentials.of(self._directory)
        return ("--certificate", str(own.certificate), "--key", str(own.key))

    def _ensure(self, name: str, module: str, port_file: Path | None, *arguments: str) -> Part:
        part = self._parts.get(name)
        if part is None or not part.is_alive():
            if port_file is not None:
                port_file.unlink(missing_ok=True)
            part = self._parts[name] = parts.start(self._directory, name, module, *arguments)
            logger.info("%s started as process %d", name, part.process.pid)
        return part

    def _check_alive(self) -> None:
        for part in self._parts.values():
            if not part.is_alive():
                raise PartError(
                    f"{part.name} ended with exit code {part.process.returncode}; its log {part.log} "
                    f"ends with:\n{parts.log_end(part.log)}"
                )

    def _write_record(self) -> None:
        pids = {"supervisor": os.getpid(), **{name: part.process.pid for name, part in self._parts.items()}}
        record.write(
            self._directory,
            record.Record(
                kubernetes=self._addresses.get("kubernetes", ""),
                storage=self._addresses["storage"],
                google=self._addresses["google"],
                kubelet=self._addresses.get("kubelet", ""),
                kubeconfig=str(self._directory / "kubeconfig") if "kubernetes" in self._addresses else "",
                bucket=self._settings.bucket,
                speed=self._settings.speed,
                slices=self._settings.slices,
                hosts=self._settings.hosts,
                controlplane=self._settings.controlplane,
                empty=self._settings.empty,
                pids=pids,
                started={name: record.start_time(pid) for name, pid in pids.items()},
            ),
        )


def supervise(settings: Settings, report: Report, finished: Callable[[], None] = lambda: None) -> int:
    """Starts the sandbox and keeps it until SIGTERM or SIGINT; returns an exit code.

    `finished` is called when the start is over, whether it succeeded or not.
    """
    # Signals are waited for, not handled: nothing happens between two steps of a start or a stop.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    supervisor = Supervisor(settings)
    try:
        try:
            supervisor.start_missing(report)
            report(READY)
        except (PartError, ValueError, OSError) as error:
            report(str(error))
            return 1
        finally:
            finished()
        while True:
            received = signal.sigwait(_SIGNALS)
            if received == signal.SIGCHLD:
                supervisor.reap()
            elif received == signal.SIGHUP:
                try:
                    supervisor.start_missing(logger.info)
                except (PartError, OSError) as error:
                    logger.error("%s", error)
            else:
                return 0
    finally:
        supervisor.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.stack.supervisor", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--slices", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--storage-port", type=int, default=0)
    parser.add_argument("--controlplane", choices=CONTROL_PLANES, default="sandbox")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--report", type=int, required=True, help="file descriptor for lines about the start")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pipe = os.fdopen(arguments.report, "w", buffering=1)
    # `up` reads until the pipe is closed; it must not wait for a part that has inherited the other end.
    os.set_inheritable(arguments.report, False)

    def report(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            pipe.write(line + "\n")

    settings = Settings(
        arguments.directory,
        arguments.slices,
        arguments.hosts,
        arguments.speed,
        arguments.bucket,
        arguments.storage_port,
        arguments.controlplane,
        arguments.empty,
    )
    return supervise(settings, report, finished=pipe.close)


if __name__ == "__main__":
    sys.exit(main())
