"""A Kubernetes API on loopback that counts the requests of everybody but the bench.

The real API server where its programs are built (scripts/build-controlplane.sh), which counts by its audit log; else
the sandbox's, which counts by itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from everstep_sandbox.controlplane import programs
from everstep_sandbox.stack import parts

BENCH = "everstep-bench"
MERGE_PATCH = "application/merge-patch+json"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
JOBS = "/apis/batch/v1"
START_SECONDS = 180.0
# Not of this file: the controllers, the scheduler and the API server itself speak as these.
_SYSTEM = "system:"

Object = dict[str, Any]


class Refused(RuntimeError):
    """The API did not take a request."""


class ApiServer:
    """A running API. `kind` is `kube-apiserver` or `sandbox`."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self.kubeconfig = directory / "kubeconfig"
        self._audit = directory / "audit.jsonl"
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = cluster["server"]
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update({"User-Agent": BENCH, "Authorization": f"Bearer {user['token']}"})
        self._session.mount(self.address, requests.adapters.HTTPAdapter(pool_maxsize=8))
        if "certificate-authority-data" in cluster:
            authority = directory / "authority.pem"
            authority.write_bytes(_decoded(cluster["certificate-authority-data"]))
            self._session.verify = str(authority)

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> Object:
        """Make one request. Raises Refused with the API's own words."""
        answer = self._session.request(
            method,
            self.address + path,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
            timeout=60,
        )
        if answer.status_code >= 400:
            raise Refused(f"{method} {path}: HTTP {answer.status_code}: {answer.text[:500]}")
        found: Object = answer.json()
        return found

    def stream(self, path: str) -> requests.Response:
        """Open a watch on a connection of its own. Raises Refused."""
        answer = self._session.get(self.address + path, stream=True, timeout=(10, None))
        if answer.status_code >= 400:
            raise Refused(f"GET {path}: HTTP {answer.status_code}: {answer.text[:500]}")
        return answer

    def patch_status(self, path: str, status: Object) -> Object:
        """Merge into an object's status."""
        return self.call("PATCH", f"{path}/status", {"status": status}, MERGE_PATCH)

    def mark(self) -> int:
        """Return a point in time for `requests_since`."""
        return self._audit.stat().st_size if self.kind != "sandbox" else self._sandbox_count()

    def requests_since(self, mark: int) -> int:
        """Return how many requests others have made since then; a watch counts once, when it starts.

        The sandbox's API can't tell who asks: make no requests meanwhile.
        """
        if self.kind == "sandbox":
            return self._sandbox_count() - mark
        with self._audit.open("rb") as log:
            if log.seek(0, os.SEEK_END) < mark:
                raise RuntimeError(f"{self._audit} has been rotated meanwhile: choose a shorter span or fewer waits")
            log.seek(mark)
            return count_requests(log.read().decode().splitlines())

    def _sandbox_count(self) -> int:
        return sum(self.call("GET", "/_sandbox/requests")["requests"].values())


def count_requests(audit_lines: list[str]) -> int:
    """Return how many requests of clients an audit log holds, without those of the bench and of system users."""
    count = 0
    for line in audit_lines:
        try:
            entry = json.loads(line)
        except ValueError:
            # The last one may still be being written.
            continue
        if str(entry["user"]["username"]).startswith(_SYSTEM) or entry["user"]["username"] == "jobset-controller":
            continue
        if str(entry.get("userAgent", "")).startswith((BENCH, "everstep-sandbox")):
            continue
        counts = "ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"
        # A watch that is refused has no start.
        refused = entry["verb"] == "watch" and entry.get("responseStatus", {}).get("code", 200) >= 400
        count += entry["stage"] == counts or refused
    return count


@contextmanager
def running_api(directory: Path, kind: str = "", *, controllers: bool = True) -> Iterator[ApiServer]:
    """Start an API in a directory; it is gone when the block is left.

    :param kind: `kube-apiserver` or `sandbox`; the first where it is built unless given
    :param controllers: whether the sandbox's controllers run; the real ones always do
    """
    kind = kind or best_kind()
    directory.mkdir(parents=True, exist_ok=True)
    module = "everstep_sandbox.controlplane" if kind == "kube-apiserver" else "everstep_sandbox.kubernetes"
    port_file = directory / "api.port"
    started = time.monotonic()
    options = ["--api-only"] if kind == "sandbox" and not controllers else []
    part = parts.start(directory, "api", module, f"--directory={directory}", f"--port-file={port_file}", *options)
    try:
        part.wait_for(port_file, START_SECONDS)
        print(f"API: {kind}, ready after {time.monotonic() - started:.0f} s", flush=True)
        yield ApiServer(directory, kind)
    finally:
        part.process.terminate()
        part.end_by(time.monotonic() + 30)


def best_kind() -> str:
    """Return `kube-apiserver` where its programs are built, else `sandbox`."""
    try:
        programs.find()
    except programs.ProgramsMissing:
        return "sandbox"
    return "kube-apiserver"


def in_threads(act: Callable[[int], object], count: int) -> None:
    """Do something for each number below `count`, a few at a time. Raises the first failure."""
    with ThreadPoolExecutor(min(4, 2 * (os.cpu_count() or 1))) as pool:
        for done in [pool.submit(act, number) for number in range(count)]:
            done.result()


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)
