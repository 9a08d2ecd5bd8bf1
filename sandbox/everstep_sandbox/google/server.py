"""The server of Google's APIs: carries requests to the router, meets faults, and notes every call that may change."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from aiohttp import web

from everstep_sandbox.google import errors
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.furnished import furnish
from everstep_sandbox.google.gke import Gke
from everstep_sandbox.google.identities import Identities
from everstep_sandbox.google.operations import FailureRule
from everstep_sandbox.google.router import Router
from everstep_sandbox.google.sandbox_world import SandboxWorld
from everstep_sandbox.google.state import NUMBER, PROJECT, State
from everstep_sandbox.google.world import NoWorld, World
from everstep_sandbox.storage.errors import StorageError
from everstep_sandbox.storage.faults import Faults

CALLS = "calls.jsonl"
"""Every call that may change something, one JSON object a line: time, method, path, caller, status."""


class Server:
    """One server on loopback; `address` is known once it was started.

    Beside Google's APIs and ``POST /token`` it serves ``/_sandbox/…``: `faults` (as Cloud Storage has them),
    `failures` (of operations), `clusters` (seed one), `keys` (make a KMS key known), `identities`.
    """

    def __init__(
        self,
        sandbox: Path,
        *,
        speed: float,
        is_part: bool = False,
        furnished: bool = False,
        project: str = PROJECT,
        number: str = NUMBER,
    ) -> None:
        """`is_part`: the rest of the sandbox stands behind the cluster; `furnished`: with one from the beginning."""
        self.address = ""
        directory = sandbox / "google"
        directory.mkdir(parents=True, exist_ok=True)
        self._calls = directory / CALLS
        self._state = State(directory, project=project, number=number)
        if furnished:
            furnish(sandbox, self._state)
        self._identities = Identities(sandbox, self._state.project)
        world: World = SandboxWorld(sandbox, self._state.number) if is_part else NoWorld()
        self._gke = Gke(self._state, world, speed=speed)
        self._router = Router(self._state, self._gke)
        self._faults = Faults()
        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/_sandbox/{what}", self._command)
        application.router.add_route("POST", "/token", self._token)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises OSError when the port is taken; another one may be tried then."""
        if self._runner.server is None:
            await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.address = f"http://{host}:{self._runner.addresses[0][1]}"
        self._gke.operations.resume()

    async def stop(self) -> None:
        await self._gke.operations.stop()
        await self._runner.cleanup()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        fault = self._faults.meet(f"{incoming.method} {incoming.raw_path}")
        if fault is not None and not fault.after:
            await asyncio.sleep(fault.delay_ms / 1000)
        body = await incoming.read()
        refuses = fault is not None and (fault.status or fault.disconnect)
        status, document = 0, dict[str, Any]()
        if fault is None or not refuses or fault.after:
            status, document = self._answer(incoming, body)
        if fault is not None and fault.after:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault is not None and fault.disconnect:
            if incoming.transport is not None:
                incoming.transport.abort()
            raise ConnectionResetError("A fault closed the connection.")
        if fault is not None and refuses:
            error = errors.of_code(fault.status, fault.message)
            return web.json_response(
                {"error": {**error.document()["error"], "code": fault.status}}, status=fault.status
            )
        return web.json_response(document, status=status)

    def _answer(self, incoming: web.Request, body: bytes) -> tuple[int, dict[str, Any]]:
        path = unquote(incoming.raw_path.partition("?")[0])
        caller = "?"
        try:
            caller = self._identities.caller(incoming.headers.get("Authorization", ""))
            query = parse_qs(incoming.query_string, keep_blank_values=True)
            request = Request(incoming.method, path, query, body, self.address, caller)
            status, document = 200, self._router.handle(request)
        except errors.GoogleError as refused:
            status, document = refused.code, refused.document()
        found = self._router.route(incoming.method, path)
        if incoming.method != "GET" and (found is None or found[0].mutates):
            self._note(incoming.method, path, caller, status)
        return status, document

    def _note(self, method: str, path: str, caller: str, status: int) -> None:
        line = {"time": time.time(), "method": method, "path": path, "caller": caller, "status": status}
        with self._calls.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    async def _token(self, incoming: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await incoming.post()).items()}
        try:
            return web.json_response(self._identities.exchange(form))
        except errors.GoogleError as refused:
            reason, _, description = refused.message.partition(": ")
            return web.json_response({"error": reason, "error_description": description}, status=400)

    async def _command(self, incoming: web.Request) -> web.Response:
        try:
            document = await incoming.json() if incoming.method == "POST" else {}
            return web.json_response(self._commanded(incoming.method, incoming.match_info["what"], document))
        except errors.GoogleError as refused:
            return web.json_response(refused.document(), status=refused.code)
        except StorageError as refused:
            return web.json_response(refused.document(), status=refused.status)

    def _commanded(self, method: str, what: str, document: dict[str, Any]) -> dict[str, Any]:
        rules = self._gke.operations.rules
        if what == "faults":
            if method == "POST":
                self._faults.add(document)
            elif method == "DELETE":
                self._faults.clear()
            return {"faults": self._faults.listed()}
        if what == "failures":
            if method == "POST":
                rules.append(FailureRule.of(document))
            elif method == "DELETE":
                rules.clear()
            return {"failures": [vars(rule) for rule in rules]}
        if method == "POST" and what == "clusters":
            return self._gke.seed(document)
        if method == "POST" and what == "keys":
            return self._router.policies.add_key(document)
        if method == "POST" and what == "identities":
            path = self._identities.make(document["name"], f"{self.address}/token")
            return {"email": self._identities.email(document["name"]), "key_file": str(path)}
        raise errors.GoogleError("NOT_FOUND", f"No such command: {method} {what}")
