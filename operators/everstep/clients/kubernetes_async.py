"""Kubernetes for triggers: one connection per cluster in the event loop."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from everstep.clients import errors, watch_stream
from everstep.clients.connection import Connection, Connections
from everstep.clients.errors import Gone, Unauthenticated, Unavailable
from everstep.clients.kubernetes import MERGE_PATCH, REQUEST_SECONDS, USER_AGENT, Object
from everstep.clients.paging import Kept, PageSize, decoded
from everstep.clients.resources import Resource
from everstep.clients.retrying import Backoff, tried

# Pages under way at once: many lists at the same moment must not keep each other, or the loop, for long.
CONCURRENT_PAGES = 3
# How often a list whose pages expire on the way is begun again.
LIST_STARTS = 5


class AsyncKubernetesClient:
    """A cluster's API in an event loop. Every method raises the errors of `everstep.clients.errors`.

    :param open_client: opens, as an asynchronous context, a `kubernetes_asyncio.client.ApiClient` with fresh
        credentials
    """

    def __init__(
        self, open_client: Callable[[], AbstractAsyncContextManager[Any]], *, backoff: Backoff | None = None
    ) -> None:
        self._connections = Connections(lambda: _named(open_client))
        self._backoff = backoff or Backoff()
        self._pages = asyncio.Semaphore(CONCURRENT_PAGES)

    async def close(self) -> None:
        """Close the connections. Requests and watches that are under way end with Unavailable."""
        await self._connections.close()

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

    async def version(self) -> str:
        """Return the server's version, such as `v1.34.1-gke.200`."""
        return str((await self._request("GET", "/version")).get("gitVersion", ""))

    async def list_all(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """Return all objects that selectors choose, and the version from which a watch goes on."""
        return await self.list_reduced(resource, namespace, lambda item: item, labels=labels, fields=fields)

    async def list_reduced(
        self,
        resource: Resource,
        namespace: str | None,
        keep: Callable[[Object], Kept | None],
        *,
        labels: str = "",
        fields: str = "",
        most: int | None = None,
    ) -> tuple[list[Kept], str]:
        """Return what `keep` makes of the objects that selectors choose, and the version from which a watch goes on.

        Objects come in pages of a bounded size, and only what `keep` returns outlives its page. A list that expires
        on the way is begun again; Unavailable is raised when that does not help.

        :param keep: reduces an object; None leaves it out. It may run in a thread
        :param most: end after the page in which so many have been kept
        """
        size = PageSize()
        for _ in range(LIST_STARTS):
            try:
                return await self._listed(resource.path(namespace), keep, _selectors(labels, fields), size, most)
            except Gone:
                await asyncio.sleep(random.uniform(0, self._backoff.first))
        raise Unavailable(f"GET {resource.path(namespace)}: the list expired {LIST_STARTS} times before its end")

    async def _listed(
        self,
        path: str,
        keep: Callable[[Object], Kept | None],
        selectors: list[tuple[str, str]],
        size: PageSize,
        most: int | None,
    ) -> tuple[list[Kept], str]:
        found: list[Kept] = []
        token = version = ""
        while True:
            query = [*selectors, ("limit", str(size.limit)), *([("continue", token)] if token else [])]
            async with self._pages:
                body = await self._answer("GET", path, query=query)
                kept, metadata, count = await decoded(body, keep)
            found += kept
            size.learn(count, len(body))
            version = version or str(metadata.get("resourceVersion", ""))
            token = metadata.get("continue") or ""
            if not token or (most is not None and len(found) >= most):
                return found, version

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

        Raises Gone when the version is too old, or was never reached by this cluster, and Unavailable when the
        connection is lost or nothing, not even a bookmark, came for `silence` seconds. The request is not repeated:
        the caller decides from which version. After Unauthenticated the next request uses fresh credentials.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            # Not all at once: triggerers that were started together would reconnect together.
            ("timeoutSeconds", str(int(silence * random.uniform(8, 12)) + 1)),
            *_selectors(labels, ""),
        ]
        where = f"watch {resource.path(namespace)}"
        response = None
        with errors.translated(where):
            async with self._connections.using() as connection:
                try:
                    refusal = b""
                    async with asyncio.timeout(min(REQUEST_SECONDS, silence)):
                        response = await self._open(connection, resource.path(namespace), query)
                        if response.status != 200:
                            refusal = await response.read()
                    if response.status != 200:
                        failure = errors.of_body(response.status, refusal, where, response.headers)
                        if isinstance(failure, Unauthenticated):
                            await self.refresh(connection)
                        raise watch_stream.refused(failure)
                    yield watch_stream.events(response, silence, where)
                finally:
                    if response is not None:
                        response.close()

    async def refresh(self, refused: Connection | None = None) -> None:
        """Use fresh credentials from the next request on; what is under way goes on with the old ones."""
        await self._connections.renew(refused)

    async def _open(self, connection: Connection, path: str, query: list[tuple[str, str]]) -> Any:
        import aiohttp

        return await connection.client.call_api(
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
        answer = await self._answer(method, path, query=query, body=body, content_type=content_type)
        return json.loads(answer) if answer else {}

    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        where = f"{method} {path}"
        used: Connection | None = None

        async def ask() -> bytes:
            nonlocal used
            async with self._connections.using() as used:
                return await _send(used, method, path, query or [], body, content_type, where)

        return await tried(ask, lambda: self._connections.renew(used), where, self._backoff)


@asynccontextmanager
async def _named(open_client: Callable[[], AbstractAsyncContextManager[Any]]) -> AsyncIterator[Any]:
    async with open_client() as client:
        client.user_agent = USER_AGENT
        yield client


async def _send(
    connection: Connection,
    method: str,
    path: str,
    query: list[tuple[str, str]],
    body: Mapping[str, Any] | None,
    content_type: str,
    where: str,
) -> bytes:
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = content_type
    response = await connection.client.call_api(
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
        answer: bytes = await response.read()
        if not 200 <= response.status <= 299:
            raise errors.of_body(response.status, answer, where, response.headers)
    return answer


def _selectors(labels: str, fields: str) -> list[tuple[str, str]]:
    named = [("labelSelector", labels), ("fieldSelector", fields)]
    return [(name, selector) for name, selector in named if selector]
