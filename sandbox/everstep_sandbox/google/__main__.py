"""``python -m everstep_sandbox.google``: the server of Google's APIs as a process; SIGTERM ends it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from everstep_sandbox.google.server import Server
from everstep_sandbox.kubernetes.files import write_atomically
from everstep_sandbox.parent import die_with_parent


async def serve(server: Server, directory: Path, port: int, port_file: Path | None) -> None:
    """Serves until SIGTERM or SIGINT. The port file is written, whole, once requests are answered."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    remembered = directory / "google" / "port"
    await _start(server, port or (int(remembered.read_text()) if remembered.exists() else 0))
    for path in filter(None, (remembered, port_file)):
        write_atomically(path, server.address.rsplit(":", 1)[1])
    await stopped.wait()
    await server.stop()


async def _start(server: Server, port: int) -> None:
    """The port of the last run is taken where it is free: clients know it by heart."""
    try:
        await server.start(port=port)
    except OSError:
        logging.getLogger(__name__).warning("Port %s is taken by another process.", port)
        await server.start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.google", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the sandbox's state directory")
    parser.add_argument("--port", type=int, default=0, help="0 takes the last run's port, or a free one")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it is open")
    parser.add_argument("--speed", type=float, default=10.0, help="divides the time that operations take")
    parser.add_argument("--sandbox", action="store_true", help="the rest of the sandbox stands behind the cluster")
    parser.add_argument("--furnished", action="store_true", help="a cluster is there from the beginning")
    parser.add_argument("--parent", type=int, help="process id of the parent, when the server shall not outlive it")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    directory = arguments.directory.resolve()
    server = Server(
        directory,
        speed=arguments.speed,
        is_part=arguments.sandbox or arguments.furnished,
        furnished=arguments.furnished,
    )
    asyncio.run(serve(server, directory, arguments.port, arguments.port_file))


if __name__ == "__main__":
    main()
