"""A storage server as a process of its own, for as long as a block runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 20.0


@contextmanager
def running_storage(directory: Path, sandbox: Path | None = None) -> Iterator[str]:
    """Address of a server that keeps its buckets in `directory`; it is gone when the block is left.

    It honours identities and policies of a sandbox where one is given.
    """
    process, address = start_storage(directory, sandbox)
    try:
        yield address
    finally:
        process.terminate()
        process.wait()


def start_storage(directory: Path, sandbox: Path | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Starts a server and waits until it answers. Raises OSError when it ends instead."""
    directory.mkdir(parents=True, exist_ok=True)
    port_file = directory / "port.now"
    port_file.unlink(missing_ok=True)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "everstep_sandbox.storage",
            f"--directory={directory}",
            f"--port-file={port_file}",
            f"--parent={os.getpid()}",
            *([f"--sandbox={sandbox}"] if sandbox is not None else []),
        ],
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _START_SECONDS
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.send_signal(signal.SIGKILL)
            raise OSError(f"The storage server of {directory} does not start (exit code {process.poll()}).")
        time.sleep(0.02)
    return process, f"http://127.0.0.1:{port_file.read_text()}"
