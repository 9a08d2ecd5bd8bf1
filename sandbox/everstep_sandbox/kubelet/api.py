"""The kubelet's small client of the Kubernetes API: list and watch, patch, create, delete.

The official clients cost a second of start-up and some 60 MB here; the kubelet needs five verbs on JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from everstep_sandbox.kubernetes.kubeconfig import read

logger = logging.getLogger(__name__)

Object = dict[str, Any]

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

_RECONNECT_SECONDS = 0.2
_WATCH_SECONDS = 300
_LARGEST_LINE = 16 * 1024 * 1024


class ApiFailure(Exception):
    """The API refused a request; `code` is the HTTP status, the text is the server's message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Event:
    """One change; type is ADDED, MODIFIED, DELETED, or RESET where a whole list follows in `items`."""

    type: str
    object: Object
    items: tuple[Object, ...] = ()


class Api:
    """Requests as the kubelet's user; use as an asynchronous context manager."""

    def __init__(self, kubeconfig: Path, *, user_agent: str = "kubelet/v1.34.0 (everstep sandbox)") -> None:
        self._address = read(kubeconfig)
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if self._address.token:
            self._headers["Authorization"] = f"Bearer {self._address.token}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=64, ssl=self._address.context or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=_LARGEST_LINE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    async def get(self, path: str, **query: str) -> Object:
        return await self._request("GET", path, query=query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._request("POST", path, body=body)

    async def update(self, path: str, body: Object) -> Object:
        return await self._request("PUT", path, body=body)

    async def patch(self, path: str, body: Object, *, kind: str = STRATEGIC_MERGE) -> Object:
        return await self._request("PATCH", path, body=body, content_type=kind)

    async def delete(self, path: str, *, grace_period_seconds: int | None = None, uid: str | None = None) -> Object:
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._request("DELETE", path, body=options)

    async def follow(self, path: str, **query: str) -> AsyncIterator[Event]:
        """All changes of a collection for ever: a RESET with the whole list first and after every gap."""
        while True:
            try:
                listing = await self.get(path, **query)
                yield Event("RESET", {}, tuple(listing.get("items") or ()))
                async for event in self._watch(path, listing["metadata"]["resourceVersion"], query):
                    yield event
            except (ApiFailure, aiohttp.ClientError, TimeoutError, ValueError) as error:
                logger.info("watch of %s is taken up again: %s", path, error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _watch(self, path: str, version: str, query: Mapping[str, str]) -> AsyncIterator[Event]:
        """Changes after `version` until the server refuses to go on, over as many requests as it takes."""
        while True:
            parameters = {
                **query,
                "watch": "true",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(_WATCH_SECONDS),
            }
            async with self._live.get(self._url(path, parameters)) as answer:
                if answer.status != 200:
                    raise ApiFailure(answer.status, await answer.text())
                async for line in answer.content:
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise ApiFailure(change["object"].get("code", 500), change["object"].get("message", ""))
                    version = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] != "BOOKMARK":
                        yield Event(change["type"], change["object"])

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": content_type} if data is not None else {}
        timeout = aiohttp.ClientTimeout(total=30)
        async with self._live.request(
            method, self._url(path, query), data=data, headers=headers, timeout=timeout
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiFailure(answer.status, _message(text))
            found: Object = json.loads(text) if text else {}
            return found

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._address.server}{path}" + (f"?{urlencode(query)}" if query else "")

    @property
    def _live(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Api is used outside of `async with`")
        return self._session


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
