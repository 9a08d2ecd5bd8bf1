"""`python -m everstep_sandbox.kubelet`: the kubelet of all nodes of a sandbox, with a small HTTP door for faults."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from everstep_sandbox import nodes
from everstep_sandbox.kubelet.addresses import Network
from everstep_sandbox.kubelet.api import Api
from everstep_sandbox.kubelet.fault_door import fault_routes
from everstep_sandbox.kubelet.fleet import Fleet
from everstep_sandbox.kubelet.kubelet import Kubelet
from everstep_sandbox.kubelet.log_door import open_log_door
from everstep_sandbox.kubelet.process import become_subreaper


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.kubelet", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the sandbox's state directory")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--storage", default="", help="address of the sandbox's Cloud Storage")
    parser.add_argument("--speed", type=float, default=10.0, help="divides the real system's long timers")
    parser.add_argument("--certificate", type=Path, help="serve logs to a real API server with this certificate (PEM)")
    parser.add_argument("--key", type=Path, help="the certificate's key (PEM)")
    parser.add_argument("--port-file", type=Path, required=True, help="where to write the port of the fault door")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    become_subreaper()
    if sys.version_info < (3, 12):
        # The default one waits in threads; this process must stay single-threaded to fork safely.
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> None:
    directory: Path = arguments.directory.resolve()
    machines = nodes.load(directory / "machines.json")
    async with Api(arguments.kubeconfig) as api:
        kubelet = Kubelet(
            api,
            directory,
            machines,
            Network(directory),
            speed=arguments.speed,
            storage=arguments.storage,
        )
        doors = []
        log_port = None
        if arguments.certificate:
            hosts = [kubelet.context(machine.name).address for machine in machines]
            doors.append(await open_log_door(kubelet, hosts, arguments.certificate, arguments.key))
            log_port = int(doors[0].addresses[0][1])
        fleet = Fleet(api, kubelet, directory, speed=arguments.speed, log_port=log_port)
        doors.append(await _open_door(fleet, arguments.port_file))
        work = [asyncio.create_task(kubelet.run()), asyncio.create_task(fleet.run())]
        ending = asyncio.create_task(_asked_to_end())
        done, _ = await asyncio.wait({*work, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*work, ending):
            if task not in done:
                task.cancel()
        await kubelet.stop()
        for door in doors:
            await door.cleanup()
        for task in done:
            task.result()


async def _open_door(fleet: Fleet, port_file: Path) -> web.AppRunner:
    application = web.Application()
    application.add_routes(fault_routes(fleet))
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    aside = port_file.with_suffix(".tmp")
    aside.write_text(str(runner.addresses[0][1]))
    os.replace(aside, port_file)
    return runner


async def _asked_to_end() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
