"""``python -m everstep_sandbox.storage``: the storage server as a process; SIGTERM ends it."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from everstep_sandbox.storage.server import Server


async def serve(directory: Path, port: int, port_file: Path | None) -> None:
    """Serves until SIGTERM or SIGINT. The port file is written, whole, once requests are answered."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = Server(directory)
    await server.start(port=port)
    if port_file is not None:
        aside = port_file.with_name(port_file.name + ".tmp")
        aside.write_text(server.address.rsplit(":", 1)[1])
        aside.rename(port_file)
    await stopped.wait()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.storage", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where buckets are kept")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it is open")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.directory, arguments.port, arguments.port_file))


if __name__ == "__main__":
    main()
