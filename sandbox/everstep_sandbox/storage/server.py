"""The storage server: carries requests of the network to the router, meets faults, sends files."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.access import Access
from everstep_sandbox.storage.doors import Doors
from everstep_sandbox.storage.exchange import FileRange, Request, Response
from everstep_sandbox.storage.faults import Faults
from everstep_sandbox.storage.router import Router, split_target
from everstep_sandbox.storage.vault import Vault

OPERATION_SECONDS = 0.05
"""How long a folder's rename or recursive delete stays pending."""

_CHANGES_BUCKETS = re.compile(r"/storage/v1/b(/[^/]+(/iam)?)?")
_PIECE_BYTES = 1 << 20
_LARGEST_BODY_BYTES = 5 << 30


class Server:
    """One storage server on loopback; `address` is known once it was started."""

    def __init__(self, directory: Path, sandbox: Path | None = None) -> None:
        """Honours identities and policies of `sandbox` where one is given; otherwise everybody may do everything.

        Beside Cloud Storage it serves ``/_sandbox/…``: `requests` (counts), `faults`, `doors` (an address for an
        identity), `denied` (identities that may do nothing), `flatten` (a bucket loses its hierarchical namespace).
        Calls that change a bucket or its policy are noted in ``<directory>/calls.jsonl``.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.address = ""
        self._vault = Vault(directory)
        self._faults = Faults()
        self._access = Access(sandbox, self._vault) if sandbox is not None else None
        self._doors = Doors(directory)
        self._calls = directory / "calls.jsonl"
        self._router = Router(self._vault, _run_later, self._access)
        self._router.faults = self._faults
        application = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        application.router.add_route("GET", "/_sandbox/requests", self._requests)
        application.router.add_route("*", "/_sandbox/faults", self._set_faults)
        application.router.add_route("POST", "/_sandbox/doors", self._open_door)
        application.router.add_route("*", "/_sandbox/denied", self._set_denied)
        application.router.add_route("POST", "/_sandbox/flatten", self._flatten)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises OSError when the port is taken; another one may be tried then."""
        if self._runner.server is None:
            await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.address = f"http://{host}:{self._port}"
        self._open: set[str] = set()
        for address in self._doors.addresses:
            await self._listen_at(address)

    async def stop(self) -> None:
        await self._runner.cleanup()
        self._vault.close()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        fault = self._faults.meet(f"{incoming.method} {incoming.raw_path}")
        if fault is not None and not fault.after:
            await asyncio.sleep(fault.delay_ms / 1000)
        body = await incoming.read()
        refuses = fault is not None and (fault.status or fault.disconnect)
        if fault is None or not refuses or fault.after:
            outgoing = self._answer(incoming, body)
        if fault is not None and fault.after:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault is not None and fault.disconnect:
            if incoming.transport is not None:
                incoming.transport.abort()
            raise ConnectionResetError("A fault closed the connection.")
        if fault is not None and refuses:
            outgoing = _refused(fault.error())
        if outgoing.file is not None:
            return await _send_file(incoming, outgoing, outgoing.file)
        payload, headers = outgoing.encoded()
        return web.Response(status=outgoing.status, body=payload, headers=headers)

    def _answer(self, incoming: web.Request, body: bytes) -> Response:
        path, query = split_target(incoming.raw_path)
        headers = {name.lower(): value for name, value in incoming.headers.items()}
        base_url = f"http://{incoming.host}" if incoming.host else self.address
        request = Request(incoming.method, path, query, headers, body, base_url)
        try:
            request = dataclasses.replace(request, caller=self._caller(incoming))
            answer = self._router.handle(request)
            self._note(request, answer.status)
            return answer
        except errors.StorageError as refused:
            self._note(request, refused.status)
            media = request.method == "GET" and query.get("alt") == "media"
            return _refused(refused, as_text=media)

    def _caller(self, incoming: web.Request) -> str:
        """Whose call it is. Raises StorageError 401."""
        if self._access is None:
            return ""
        at = incoming.transport.get_extra_info("sockname")[0] if incoming.transport is not None else ""
        identity = self._doors.identity(at)
        authorization = incoming.headers.get("Authorization", "")
        return identity if identity is not None else self._access.caller(authorization)

    def _note(self, request: Request, status: int) -> None:
        if request.method != "GET" and _CHANGES_BUCKETS.fullmatch(request.path):
            line = {"time": time.time(), "method": request.method, "path": request.path, "caller": request.caller}
            with self._calls.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "status": status}) + "\n")

    async def _open_door(self, incoming: web.Request) -> web.Response:
        address = self._doors.address(str((await incoming.json())["identity"]))
        await self._listen_at(address)
        return web.json_response({"address": f"http://{address}:{self._port}"})

    async def _set_denied(self, incoming: web.Request) -> web.Response:
        if self._access is None:
            return web.json_response({"error": "This server looks at no identities."}, status=409)
        if incoming.method == "POST":
            self._access.denied.add(str((await incoming.json())["identity"]))
        elif incoming.method == "DELETE":
            self._access.denied.clear()
        return web.json_response({"denied": sorted(self._access.denied)})

    async def _flatten(self, incoming: web.Request) -> web.Response:
        try:
            bucket = self._vault.bucket(str((await incoming.json())["bucket"]))
        except errors.StorageError as refused:
            return web.json_response({"error": refused.message}, status=refused.status)
        with self._vault.index.transaction():
            self._vault.index.put_bucket(dataclasses.replace(bucket, hierarchical=False))
        return web.json_response({"bucket": bucket.name, "hierarchical": False})

    async def _listen_at(self, address: str) -> None:
        if address not in self._open:
            self._open.add(address)
            await web.TCPSite(self._runner, address, self._port).start()

    async def _requests(self, incoming: web.Request) -> web.Response:
        return web.json_response(dict(self._router.counts))

    async def _set_faults(self, incoming: web.Request) -> web.Response:
        if incoming.method == "POST":
            try:
                self._faults.add(await incoming.json())
            except errors.StorageError as refused:
                return web.json_response(refused.document(), status=refused.status)
        elif incoming.method == "DELETE":
            self._faults.clear()
        return web.json_response({"faults": self._faults.listed()})


def _run_later(action: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(OPERATION_SECONDS, action)


def _refused(error: errors.StorageError, *, as_text: bool = False) -> Response:
    """Downloads are refused in plain text, all else in JSON, as the service does."""
    if error.status == 304:
        return Response(304)
    if as_text:
        headers = {"Content-Type": "text/html; charset=UTF-8", **error.headers}
        return Response(error.status, body=error.message.encode(), headers=headers)
    return Response(error.status, document=error.document(), headers=error.headers)


async def _send_file(incoming: web.Request, response: Response, file: FileRange) -> web.StreamResponse:
    # Opened before anything is awaited: the object may be replaced while its bytes are on their way.
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        if file.length <= _PIECE_BYTES:
            body = os.pread(descriptor, file.length, file.start)
            return web.Response(status=response.status, body=body, headers=response.headers)
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.content_length = file.length
        await stream.prepare(incoming)
        sent = 0
        while sent < file.length:
            piece = os.pread(descriptor, min(_PIECE_BYTES, file.length - sent), file.start + sent)
            await stream.write(piece)
            sent += len(piece)
        await stream.write_eof()
        return stream
    finally:
        os.close(descriptor)
