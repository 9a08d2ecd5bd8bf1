"""The API server: one aiohttp application that routes every request to reads, writes, watches, logs or discovery."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import web

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.http import discovery, openapi
from everstep_sandbox.kubernetes.http.access import check_token
from everstep_sandbox.kubernetes.http.fault_rules import FaultRule, FaultRules
from everstep_sandbox.kubernetes.http.listing import Lister, presented
from everstep_sandbox.kubernetes.http.pod_logs import LogReader
from everstep_sandbox.kubernetes.http.requests import Call, parse_path
from everstep_sandbox.kubernetes.http.watching import Watches
from everstep_sandbox.kubernetes.http.writing import Writer
from everstep_sandbox.kubernetes.store import Store

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 8 * 1024 * 1024


class ApiServer:
    """HTTP on top of a store. `application()` gives what aiohttp serves."""

    def __init__(self, store: Store, directory: Path, *, required_token: str | None = None) -> None:
        """directory holds the kubelet's logs; with required_token requests without it get 401."""
        self._store = store
        self._required_token = required_token
        self._lister = Lister(store)
        self._writer = Writer(store)
        self._watches = Watches(store)
        self._logs = LogReader(store, directory)
        self._faults = FaultRules()
        self._requests: Counter[str] = Counter()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[self._answer_errors])
        application.router.add_route("*", "/{path:.*}", self._route)
        application.on_shutdown.append(self._end_watches)
        return application

    async def _end_watches(self, _application: web.Application) -> None:
        self._watches.drop_all()

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
            return response
        except ApiError as error:
            return _status_response(error)
        except web.HTTPException as error:
            return _status_response(ApiError(error.status, "BadRequest", error.reason or "bad request"))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            _LOG.exception("%s %s", request.method, request.path_qs)
            return _status_response(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.startswith("/_sandbox/"):
            return await self._control(request)
        if path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if self._required_token is not None:
            check_token(request, self._required_token)
        rule = self._faults.take(request.method, request.path_qs, request.headers.get("Authorization", ""))
        if rule is not None and rule.stall:
            return await self._watches.serve_silence(request)
        if rule is not None and not rule.after:
            await _meet(rule, request)
        answer = await self._answer(request, path)
        if rule is not None and rule.after:
            await _meet(rule, request)
        return answer

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        document = await self._document(path)
        if document is not None:
            if path == "/openapi/v2" and "protobuf" in request.headers.get("Accept", ""):
                raise ApiError(406, "NotAcceptable", "only application/json is served for this document")
            return _json(document)
        return await self._object_request(Call(request, parse_path(path)))

    async def _document(self, path: str) -> dict[str, Any] | None:
        """A discovery or OpenAPI document, or None for other paths."""
        parts = path.strip("/").split("/")
        if path == "/version":
            return discovery.VERSION
        if parts == ["api"]:
            return discovery.core_versions()
        if parts == ["apis"]:
            return discovery.groups()
        if parts == ["openapi", "v2"]:
            return await asyncio.to_thread(openapi.v2_document)
        if parts == ["openapi", "v3"]:
            return openapi.v3_index()
        if parts[:2] == ["openapi", "v3"]:
            return await asyncio.to_thread(openapi.v3_document, "/".join(parts[2:]))
        if parts[0] == "api" and len(parts) == 2:
            return discovery.resource_list("", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            return discovery.group(parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return discovery.resource_list(parts[1], parts[2])
        return None

    async def _object_request(self, call: Call) -> web.StreamResponse:
        method = call.request.method
        self._requests[f"{method} {call.resource.plural}{'/' + call.subresource if call.subresource else ''}"] += 1
        if method in ("GET", "HEAD"):
            return await self._read(call)
        if method == "POST":
            status, answer = await (self._writer.subresource(call) if call.name else self._writer.create(call))
        elif method == "PUT" and call.name:
            status, answer = await self._writer.replace(call)
        elif method == "PATCH" and call.name:
            status, answer = await self._writer.patch(call)
        elif method == "DELETE":
            status, answer = await (self._writer.delete(call) if call.name else self._writer.delete_collection(call))
        else:
            raise errors.method_not_allowed(f"{method} is not supported on {call.request.path}")
        if answer.get("kind") == call.resource.kind:
            answer = presented(call, answer, self._store.version)
        return _json(answer, status)

    async def _read(self, call: Call) -> web.StreamResponse:
        if call.subresource == "log":
            return await self._logs.serve(call)
        if call.subresource not in (None, "status"):
            raise errors.method_not_allowed(f"GET is not supported on {call.resource.plural}/{call.subresource}")
        if call.flag("watch"):
            self._requests[f"WATCH {call.resource.plural}"] += 1
            return await self._watches.serve(call)
        return _json(self._lister.get(call) if call.name else self._lister.list_objects(call))

    async def _control(self, request: web.Request) -> web.Response:
        """The sandbox's own switches: /_sandbox/faults (POST, DELETE) and /_sandbox/requests (GET)."""
        if request.path == "/_sandbox/requests" and request.method == "GET":
            return _json({"requests": dict(self._requests), "watches": self._watches.count})
        if request.path == "/_sandbox/faults" and request.method == "DELETE":
            self._faults.clear()
            return _json({})
        if request.path != "/_sandbox/faults" or request.method != "POST":
            raise errors.no_such_path(request.path)
        asked = json.loads(await request.read())
        dropped = 0
        if asked.get("compact"):
            self._store.history.compact(self._store.version)
            self._lister.forget_snapshots()
        if asked.get("drop_watches"):
            gone = errors.expired("too old resource version: 1 (2)")
            dropped = self._watches.drop_all(gone if asked["drop_watches"] == "expired" else None)
        if asked.get("stall_watches"):
            dropped = self._watches.stall_all()
        if "match" in asked:
            self._faults.add(asked)
        return _json({"dropped": dropped})


async def _meet(rule: FaultRule, request: web.Request) -> None:
    """Delays the request or its answer; raises where there is to be none."""
    await asyncio.sleep(rule.delay_seconds)
    if rule.reset and request.transport is not None:
        request.transport.abort()
        raise ConnectionResetError("fault asked of the sandbox")
    if rule.status is not None:
        raise rule.error()


def _json(body: Any, status: int = 200) -> web.Response:
    data = json.dumps(body, separators=(",", ":")).encode()
    return web.Response(body=data, status=status, content_type="application/json")


def _status_response(error: ApiError) -> web.Response:
    response = _json(error.status(), error.code)
    if "retryAfterSeconds" in error.details:
        response.headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return response
