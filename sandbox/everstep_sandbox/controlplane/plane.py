"""The control plane's processes: started in the order in which they need each other, stopped in the other one."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from everstep_sandbox.controlplane import furnishing
from everstep_sandbox.controlplane.credentials import ADMIN
from everstep_sandbox.controlplane.programs import Programs
from everstep_sandbox.controlplane.settings import Settings
from everstep_sandbox.kubernetes import kubeconfig
from everstep_sandbox.kubernetes.files import write_atomically
from everstep_sandbox.stack import furnish, parts
from everstep_sandbox.stack.furnish import Object, RequestError
from everstep_sandbox.stack.parts import Part, PartError

_PORTS = ("etcd", "etcd-peer", "api", "webhooks", "jobset-health")
# How often other ports are tried when somebody takes one before its program does.
_TRIES = 3
_START_SECONDS = 120.0
# etcd's log alone begins with 64 MB, and what it says of a full disk is a stack of calls.
_FREE_BYTES = 256 << 20
_POLL_SECONDS = 0.05
# etcd last: the others write until they end.
_STOP_SECONDS = 10.0


class ControlPlane:
    """A control plane in a directory. What it holds stays there when it is stopped."""

    def __init__(self, directory: Path, programs: Programs, *, speed: float = 1.0) -> None:
        self._programs = programs
        self._parts: list[Part] = []
        self._lock = _locked(directory)
        self.settings = Settings(directory, _ports(directory), speed)
        self.kubeconfig = directory / "kubeconfig"

    @property
    def server(self) -> str:
        """Address of the API."""
        return self.settings.server

    def start(self) -> None:
        """Starts all programs and returns when a JobSet could be created; raises PartError."""
        for left in reversed(range(_TRIES)):
            try:
                return self._start_all()
            except PartError:
                # With all programs gone, a port that is not free is somebody else's.
                self.stop()
                if not left or all(map(_is_free, self.settings.ports.values())):
                    raise
            self.settings = dataclasses.replace(self.settings, ports=_ports(self.settings.directory))

    def _start_all(self) -> None:
        settings = self.settings
        free = shutil.disk_usage(settings.own).free
        if free < _FREE_BYTES:
            raise PartError(
                f"{settings.own}: {free >> 20} MB are free, expected {_FREE_BYTES >> 20} for etcd. Make room, or name "
                "another directory"
            )
        settings.credentials.ensure()
        settings.credentials.write_kubeconfigs(settings.server)
        settings.write()
        self._start("etcd", settings.etcd())
        self._start("kube-apiserver", settings.api_server())
        self._until(lambda: self._answers("/readyz"), "the API server to be ready")
        furnishing.furnish(self._ask, settings, self._programs.manifests)
        self._start("kube-controller-manager", settings.controller_manager())
        self._start("kube-scheduler", settings.scheduler())
        self._until(lambda: self._answers("/apis/jobset.x-k8s.io/v1alpha2"), "the API of JobSets")
        self._start("jobset-controller", settings.jobset_controller())
        health = f"http://127.0.0.1:{settings.ports['jobset-health']}/readyz"
        self._until(lambda: _is_well(health), "the JobSet controller to be ready")
        furnishing.furnish_webhooks(self._ask, settings, self._programs.manifests)
        self._until(self._takes_pods, "ServiceAccounts")
        self._until(self._takes_jobsets, "the JobSet controller's webhooks")
        config = settings.credentials.kubeconfig(ADMIN).read_text()
        write_atomically(self.kubeconfig, config, mode=0o600)

    def stop(self) -> None:
        """Ends all programs; nothing of them is left when this returns."""
        for part in reversed(self._parts):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.process.pid, signal.SIGTERM)
            part.end_by(time.monotonic() + _STOP_SECONDS)
        self._parts.clear()

    def check(self) -> None:
        """Raises PartError when a program has ended."""
        for part in self._parts:
            if not part.is_alive():
                raise PartError(
                    f"{part.name} ended with exit code {part.process.returncode}; "
                    f"its log {part.log} ends with:\n{parts.log_end(part.log)}"
                )

    def close(self) -> None:
        """Ends all programs and lets go of the directory."""
        self.stop()
        os.close(self._lock)

    def _start(self, name: str, arguments: list[str]) -> None:
        program = str(self._programs.path(name))
        # An API server whose etcd is gone takes a minute to end on SIGTERM.
        started = parts.start_program(self.settings.directory, name, program, *arguments, orphaned=signal.SIGKILL)
        self._parts.append(started)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not holds():
            self.check()
            if time.monotonic() > deadline:
                logs = self.settings.directory / "logs"
                raise PartError(f"Waited {_START_SECONDS:.0f} s in vain for {what}; see {logs}")
            time.sleep(_POLL_SECONDS)

    def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        address = kubeconfig.read(self.settings.credentials.kubeconfig(ADMIN))
        return furnish.request(method, address.server + path, body, address.token, address.context)

    def _answers(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except json.JSONDecodeError:
            return True  # /readyz says "ok"
        except (RequestError, OSError):
            return False
        return True

    def _takes_pods(self) -> bool:
        # Pods are refused until the namespace's default ServiceAccount exists.
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _takes_jobsets(self) -> bool:
        # The API server learns of new webhooks a moment after they are created.
        probe = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "everstep-probe"},
            "spec": {"replicatedJobs": [{"name": "probe", "template": {"spec": {"template": {"spec": _PROBE_POD}}}}]},
        }
        try:
            made = self._ask("POST", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?dryRun=All", probe)
        except (RequestError, OSError):
            return False
        return "network" in made["spec"]


_PROBE_POD = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}


def _locked(directory: Path) -> int:
    """The descriptor that keeps another control plane out of a directory until it is closed; raises PartError."""
    own = directory / "controlplane"
    own.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(own / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise PartError(f"A control plane runs in {directory} already; end it, or name another directory") from None
    return descriptor


def _ports(directory: Path) -> dict[str, int]:
    """The ports of the last start where they are all free, so that clients of a restarted cluster find it again."""
    record = directory / "controlplane" / "ports.json"
    if record.exists():
        known: dict[str, int] = json.loads(record.read_text())
        if all(_is_free(port) for port in known.values()):
            return known
    sockets = [socket.socket() for _ in _PORTS]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        found = {name: int(one.getsockname()[1]) for name, one in zip(_PORTS, sockets, strict=True)}
    finally:
        for one in sockets:
            one.close()
    write_atomically(record, json.dumps(found))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_well(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
