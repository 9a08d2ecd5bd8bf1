"""The server as a process of its own for as long as a block runs, and what tests ask of it beside Google's APIs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everstep_sandbox.google.server import CALLS
from everstep_sandbox.stack.furnish import request

Object = dict[str, Any]

_START_SECONDS = 30.0


class RunningGoogle:
    """A server that runs; `kill` and `start` it again to see what survives."""

    def __init__(self, directory: Path, *, speed: float) -> None:
        self.directory = directory
        self.speed = speed
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Waits until it answers. Raises OSError when it ends instead."""
        self.directory.mkdir(parents=True, exist_ok=True)
        port_file = self.directory / "google.port"
        port_file.unlink(missing_ok=True)
        options = [f"--directory={self.directory}", f"--port-file={port_file}", f"--parent={os.getpid()}"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "everstep_sandbox.google", f"--speed={self.speed}", *options],
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise OSError(f"The server of Google's APIs in {self.directory} does not start.")
            time.sleep(0.02)
        self.address = f"http://127.0.0.1:{port_file.read_text()}"

    def kill(self) -> None:
        """Ends it without a word (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def command(self, what: str, document: Object | None = None, method: str = "POST") -> Object:
        """One of ``/_sandbox/…``: `faults`, `failures`, `clusters`, `keys`, `identities`."""
        return request(method, f"{self.address}/_sandbox/{what}", document)

    def calls(self) -> list[Object]:
        """Every call that may have changed something, oldest first, with its status."""
        path = self.directory / "google" / CALLS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def identity(self, name: str) -> Path:
        """The key file of a service account, made when it is not there."""
        return Path(self.command("identities", {"name": name})["key_file"])


@contextmanager
def running_google(directory: Path, *, speed: float = 100.0) -> Iterator[RunningGoogle]:
    """A server that keeps its state in `directory`/google; it is gone when the block is left."""
    server = RunningGoogle(directory, speed=speed)
    server.start()
    try:
        yield server
    finally:
        server.kill()
