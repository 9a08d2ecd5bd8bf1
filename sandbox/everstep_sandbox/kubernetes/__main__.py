"""`python -m everstep_sandbox.kubernetes`: the API server, its garbage collector and the controllers, in one process.

Writes DIR/kubeconfig when requests are answered. SIGTERM ends it; what was committed stays on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import signal
import socket
from pathlib import Path

from aiohttp import web

from everstep_sandbox.kubernetes import garbage
from everstep_sandbox.kubernetes.admission import register
from everstep_sandbox.kubernetes.bootstrap import create_initial_objects
from everstep_sandbox.kubernetes.files import write_atomically
from everstep_sandbox.kubernetes.http.access import load_token
from everstep_sandbox.kubernetes.http.server import ApiServer
from everstep_sandbox.kubernetes.kubeconfig import kubeconfig
from everstep_sandbox.kubernetes.store import Store

_CONTROLLERS = "everstep_sandbox.kubernetes.controllers"


def listen(directory: Path, port: int) -> socket.socket:
    """A listening socket on loopback. Port 0 takes the port of the last run where it is free, so that clients of a
    restarted server find it again."""
    remembered = directory / "kubernetes" / "port"
    candidates = [port]
    if port == 0 and remembered.exists():
        candidates.insert(0, int(remembered.read_text(encoding="utf-8")))
    for candidate in candidates:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
        except OSError:
            listener.close()
            if candidate == candidates[-1]:
                raise
            continue
        listener.listen(1024)
        write_atomically(remembered, str(listener.getsockname()[1]))
        return listener
    raise AssertionError("the last candidate either returns or raises")


async def serve(
    directory: Path,
    *,
    port: int,
    speed: float,
    require_token: bool,
    with_controllers: bool,
    furnished: bool,
    port_file: Path | None,
) -> None:
    """Serves until SIGTERM or SIGINT. Raises whatever ends a controller or the garbage collector."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    store = Store(directory)
    register(store)
    create_initial_objects(store, furnished=furnished)
    token = load_token(directory)
    api = ApiServer(store, directory, required_token=token if require_token else None)
    runner = web.AppRunner(api.application(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    listener = listen(directory, port)
    await web.SockSite(runner, listener).start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    tasks = [
        asyncio.create_task(garbage.run(store), name="garbage collector"),
        asyncio.create_task(garbage.expire_events(store), name="expiry of events"),
    ]
    if with_controllers and importlib.util.find_spec(_CONTROLLERS) is not None:
        controllers = importlib.import_module(_CONTROLLERS)
        running = controllers.run_all(store, speed=speed, directory=directory)
        tasks.append(asyncio.create_task(running, name="controllers"))
    write_atomically(directory / "kubeconfig", kubeconfig(address, token), mode=0o600)
    if port_file is not None:
        write_atomically(port_file, address.rpartition(":")[2])
    logging.info("Kubernetes API at %s", address)
    stopping = asyncio.create_task(stopped.wait(), name="signal")
    try:
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
            raise RuntimeError(f"The {task.get_name()} ended; it should run until the server is stopped.")
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)
        await runner.cleanup()
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.kubernetes", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the sandbox's state directory")
    parser.add_argument("--port", type=int, default=0, help="0 takes the last run's port, or a free one")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it answers")
    parser.add_argument("--speed", type=float, default=10.0, help="divides the real system's long timers")
    parser.add_argument("--require-token", action="store_true", help="answer 401 without the kubeconfig's token")
    parser.add_argument("--api-only", action="store_true", help="run no controllers and no scheduler")
    parser.add_argument(
        "--bare", action="store_true", help="neither JobSets nor checkpointing until they are installed"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(
        serve(
            arguments.directory.resolve(),
            port=arguments.port,
            speed=arguments.speed,
            require_token=arguments.require_token,
            with_controllers=not arguments.api_only,
            furnished=not arguments.bare,
            port_file=arguments.port_file,
        )
    )


if __name__ == "__main__":
    main()
