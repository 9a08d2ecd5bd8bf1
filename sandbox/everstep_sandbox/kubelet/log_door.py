"""Where a real API server fetches the logs of containers: GET /containerLogs/<namespace>/<pod>/<container> over TLS.

All nodes answer at one port, each at its own address, as the API server knows them from their Node objects.
"""

from __future__ import annotations

import contextlib
import errno
import ssl
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from everstep_sandbox.container_logs import LogView, read
from everstep_sandbox.kubelet.container_log import log_path
from everstep_sandbox.kubelet.kubelet import Kubelet
from everstep_sandbox.kubelet.pod_worker import PodWorker

_PORTS_TRIED = 20


async def open_log_door(kubelet: Kubelet, addresses: Iterable[str], certificate: Path, key: Path) -> web.AppRunner:
    """Serves logs at each of these addresses; `runner.addresses[0][1]` is the port.

    Raises OSError when no port is free at all of them.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    application = web.Application()
    application.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", _Logs(kubelet).serve)])
    first, *others = addresses
    for attempt in range(_PORTS_TRIED):
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, first, 0, ssl_context=context).start()
            port = runner.addresses[0][1]
            for address in others:
                await web.TCPSite(runner, address, port, ssl_context=context).start()
        except OSError as error:
            await runner.cleanup()
            if error.errno != errno.EADDRINUSE or attempt == _PORTS_TRIED - 1:
                raise
        else:
            return runner
    raise AssertionError("the last try either returns or raises")


class _Logs:
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def serve(self, request: web.Request) -> web.StreamResponse:
        wanted = (request.match_info["namespace"], request.match_info["pod"])
        container = request.match_info["container"]
        worker = next((one for one in self._kubelet.workers() if _name(one) == wanted), None)
        if worker is None or container not in {**worker.init, **worker.main}:
            return web.Response(status=404, text=f"no container {container} of pod {'/'.join(wanted)} on this node")
        try:
            view = LogView(request.query)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        path = log_path(worker.directory, container)
        with contextlib.suppress(ConnectionError):
            async for text in read(path, view, lambda: _is_running(worker, container)):
                await response.write(text)
        return response


def _name(worker: PodWorker) -> tuple[str, str]:
    return worker.pod["metadata"]["namespace"], worker.pod["metadata"]["name"]


def _is_running(worker: PodWorker, container: str) -> bool:
    return not worker.task.done() and {**worker.init, **worker.main}[container].state.is_running
