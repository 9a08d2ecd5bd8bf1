"""The control planes that the suite runs against, each started as users start it, and what is known of each."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from everstep_sandbox.controlplane.programs import ProgramsMissing, find

SPEED = 10.0
START_SECONDS = 120.0
KUBECONFIG_VARIABLE = "EVERSTEP_TEST_KUBECONFIG"


@dataclass(frozen=True)
class Timing:
    """How long its slow things take, in seconds: the suite waits by these and asserts no more than an order."""

    not_ready: float
    """Until a silent node is NotReady."""
    node_gone: float
    """Until the pods of a deleted node are collected."""
    toleration_speed: float = 1.0
    """What tolerationSeconds are divided by."""

    def tolerate(self, seconds: float) -> int:
        """The tolerationSeconds that pass in so many real seconds."""
        return round(seconds * self.toleration_speed)


@dataclass(frozen=True)
class Plane:
    """A running control plane. `id` is `sandbox` or `real`."""

    id: str
    kubeconfig: Path
    timing: Timing
    slowness: float = 1.0
    """By what waits are multiplied: a distant cluster answers later than loopback."""
    compact: Callable[[], None] | None = field(default=None, compare=False)
    """Makes it forget old versions; None where nobody but its owner can."""
    aged: Callable[[str], str] = field(default=lambda token: token, compare=False)
    """A page's token as one that was handed out before the versions that are forgotten."""


@contextmanager
def sandbox(directory: Path) -> Iterator[Plane]:
    """The sandbox's own control plane."""
    with _process("everstep_sandbox.kubernetes", directory) as port:
        address = f"http://127.0.0.1:{port}"

        def compact() -> None:
            _post(f"{address}/_sandbox/faults", {"compact": True})

        timing = Timing(not_ready=40 / SPEED, node_gone=40 / SPEED, toleration_speed=SPEED)
        yield Plane("sandbox", directory / "kubeconfig", timing, compact=compact)


@contextmanager
def real(directory: Path) -> Iterator[Plane]:
    """The programs of a real one, or the cluster of EVERSTEP_TEST_KUBECONFIG. Skips where there is neither."""
    if given := os.environ.get(KUBECONFIG_VARIABLE):
        if not Path(given).is_file():
            pytest.fail(f"{KUBECONFIG_VARIABLE} names {given}: found no file, expected a kubeconfig", pytrace=False)
        yield Plane("real", Path(given), Timing(not_ready=60, node_gone=90), slowness=3.0, aged=_aged)
        return
    try:
        find()
    except ProgramsMissing as missing:
        pytest.skip(str(missing))
    with _process("everstep_sandbox.controlplane", directory):
        etcd = json.loads((directory / "controlplane" / "ports.json").read_text())["etcd"]
        # The collector of pods looks every 20 s; a node that it misses it believes gone at the first look after 40 s
        # more. Neither is a flag.
        timing = Timing(not_ready=40 / SPEED, node_gone=80)
        yield Plane(
            "real", directory / "kubeconfig", timing, compact=lambda: _compact(f"http://127.0.0.1:{etcd}"), aged=_aged
        )


PLANES = {"sandbox": sandbox, "real": real}


@contextmanager
def _process(module: str, directory: Path) -> Iterator[str]:
    """Runs a control plane's module until the end of the block; yields its port."""
    directory.mkdir(parents=True, exist_ok=True)
    port_file, log = directory / "port.txt", directory / "plane.log"
    command = [sys.executable, "-m", module, "--directory", str(directory), "--port-file", str(port_file)]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--speed", f"{SPEED:g}"], stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module} did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.05)
        yield port_file.read_text().strip()
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _compact(etcd: str) -> None:
    """Compacts etcd up to its present revision, as the API server does every five minutes."""
    present = _post(f"{etcd}/v3/kv/range", {"key": "AA==", "count_only": True})
    _post(f"{etcd}/v3/kv/compaction", {"revision": present["header"]["revision"], "physical": True})


def _aged(token: str) -> str:
    """A real server's token names the version of the list; its cache answers for recent ones in spite of compaction."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps({**content, "rv": 1}).encode()).decode().rstrip("=")


def _post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())
