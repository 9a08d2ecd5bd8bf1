"""Kubernetes for triggers: one connection per cluster in the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from everstep.clients import errors
from everstep.clients.kubernetes import MERGE_PATCH, REQUEST_SECONDS, USER_AGENT, Object, list_query
from everstep.clients.resources import Resource
from everstep.clients.retrying import Backoff, tried


class AsyncKubernetesClient:
    """A cluster's API in an event loop. Every method raises the errors of `everstep.clients.errors`.

    :param open_client: opens, as an asynchronous context, a `kubernetes_asyncio.client.ApiClient` with fresh
        credentials
    """

    def __init__(
        self, open_client: Callable[[], AbstractAsyncContextManager[Any]], *, backoff: Backoff | None = None
    ) -> None:
        self._open_client = open_client
        self._backoff = backoff or Backoff()
        self._context: AbstractAsyncContextManager[Any] | None = None
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections. Requests and watches that are under way end with Unavailable."""
        async with self._opening:
            context, self._context, self._client = self._context, None, None
            if context is not None:
                await context.__aexit__(None, None, None)

    async def __aenter__(self) -> AsyncKubernetesClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object. Raises NotFound."""
        return await self._request("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Return one object, or None when there is none."""
        try:
            return await self.get(resource, name, namespace)
        except errors.NotFound:
            return None

    async def list_all(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """Return all objects that selectors choose, and the version from which a watch goes on."""
        items: list[Object] = []
        token = version = ""
        while True:
            query = list_query(labels, fields) + ([("continue", token)] if token else [])
            page = await self._request("GET", resource.path(namespace), query=query)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            version = version or str(metadata.get("resourceVersion", ""))
            token = metadata.get("continue") or ""
            if not token:
                return items, version

    async def patch(self, resource: Resource, name: str, body: Object, namespace: str | None = None) -> Object:
        """Merge `body` into an object."""
        return await self._request("PATCH", resource.path(namespace, name), body=body, content_type=MERGE_PATCH)

    async def delete(self, resource: Resource, name: str, namespace: str | None, *, uid: str) -> bool:
        """Delete this very object and, before it, all that it owns. Return False when there was none."""
        body: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        try:
            await self._request("DELETE", resource.path(namespace, name), body=body)
        except errors.NotFound:
            return False
        return True

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str | None, version: str, *, labels: str = "", silence: float
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """Open a watch from a version: an iterator of `{"type", "object"}`, which ends when the server ends it.

        Raises Gone when the version is too old and Unavailable when the connection is lost or nothing, not even a
        bookmark, came for `silence` seconds. The request is not repeated: the caller decides from which version.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(int(silence * 10))),
        ]
        if labels:
            query.append(("labelSelector", labels))
        where = f"watch {resource.path(namespace)}"
        response = None
        try:
            with errors.translated(where):
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await self._open(resource.path(namespace), query)
                if response.status != 200:
                    raise errors.of_body(response.status, await response.read(), where, response.headers)
                yield _lines(response, silence, where)
        finally:
            if response is not None:
                response.close()

    async def refresh(self) -> None:
        """Open the connection anew, with fresh credentials, at the next request."""
        await self.close()

    async def _open(self, path: str, query: list[tuple[str, str]]) -> Any:
        import aiohttp

        client = await self._connected()
        return await client.call_api(
            path,
            "GET",
            query_params=query,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS),
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        where = f"{method} {path}"
        return await tried(
            lambda: self._request_once(method, path, query or [], body, content_type, where),
            self.close,
            where,
            self._backoff,
        )

    async def _request_once(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Mapping[str, Any] | None,
        content_type: str,
        where: str,
    ) -> Object:
        client = await self._connected()
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        response = await client.call_api(
            path,
            method,
            query_params=query,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=REQUEST_SECONDS,
        )
        async with response:
            answer = await response.read()
            if not 200 <= response.status <= 299:
                raise errors.of_body(response.status, answer, where, response.headers)
        return json.loads(answer) if answer else {}

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                context = self._open_client()
                self._client = await context.__aenter__()
                self._client.user_agent = USER_AGENT
                self._context = context
            return self._client


async def _lines(response: Any, silence: float, where: str) -> AsyncIterator[Object]:
    """Yield the events of a watch's answer, one JSON document a line."""
    while True:
        try:
            async with asyncio.timeout(silence):
                line = await response.content.readline()
        except TimeoutError:
            raise errors.Unavailable(f"{where}: nothing came for {silence:g} s") from None
        if not line:
            return
        if not line.strip():
            continue
        event = json.loads(line)
        if event.get("type") == "ERROR":
            status = event.get("object") or {}
            raise errors.of_status(
                int(status.get("code") or 500),
                f"{where}: {status.get('message', 'error event')}",
                reason=str(status.get("reason", "")),
            )
        yield event
