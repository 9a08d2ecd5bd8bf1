"""``python -m everstep_sandbox.storage``: the storage server as a process; SIGTERM ends it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from everstep_sandbox.parent import die_with_parent
from everstep_sandbox.storage.server import Server

_PORT_FILE = "port"


async def serve(directory: Path, port: int, port_file: Path | None, sandbox: Path | None = None) -> None:
    """Serves until SIGTERM or SIGINT. The port file is written, whole, once requests are answered."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = Server(directory, sandbox)
    await _start(server, port, _last_port(directory) if port == 0 else None)
    opened = server.address.rsplit(":", 1)[1]
    for path in filter(None, (directory / _PORT_FILE, port_file)):
        aside = path.with_name(path.name + ".tmp")
        aside.write_text(opened)
        aside.rename(path)
    await stopped.wait()
    await server.stop()


async def _start(server: Server, port: int, last_port: int | None) -> None:
    """The port of the last run is taken where it is free: clients know it by heart, running pods too."""
    if last_port is not None:
        try:
            await server.start(port=last_port)
            return
        except OSError:
            logging.getLogger(__name__).warning("Port %s of the last run is taken by another process.", last_port)
    await server.start(port=port)


def _last_port(directory: Path) -> int | None:
    try:
        return int((directory / _PORT_FILE).read_text())
    except FileNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.storage", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where buckets are kept")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it is open")
    parser.add_argument("--sandbox", type=Path, help="the sandbox whose identities and policies are honoured")
    parser.add_argument("--parent", type=int, help="process id of the parent, when the server shall not outlive it")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    asyncio.run(serve(arguments.directory, arguments.port, arguments.port_file, arguments.sandbox))


if __name__ == "__main__":
    main()
