"""Google Cloud's APIs for triggers: reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from everstep.clients import errors
from everstep.clients.google_requests import REQUEST_SECONDS, Endpoints, Object
from everstep.clients.retrying import Backoff, tried

if TYPE_CHECKING:
    import aiohttp


class AsyncGoogleCloud:
    """Google Cloud in an event loop. Every method raises the errors of `everstep.clients.errors`.

    :param credentials: of google.auth; they are refreshed in a thread, once an hour
    """

    def __init__(self, credentials: Any, endpoints: Endpoints, *, backoff: Backoff | None = None) -> None:
        self._credentials = credentials
        self._endpoints = endpoints
        self._backoff = backoff or Backoff()
        self._session: aiohttp.ClientSession | None = None
        self._refreshing = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> AsyncGoogleCloud:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, service: str, path: str) -> Object:
        """Return a document."""
        url = self._endpoints.url(service, path)

        async def asked() -> Object:
            return await self._get_once(url)

        return await tried(asked, self._refresh, f"GET {url}", self._backoff)

    async def _get_once(self, url: str) -> Object:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS))
        async with self._session.get(url, headers=await self._headers(), allow_redirects=False) as response:
            body = await response.read()
            if response.status >= 300:
                raise errors.of_body(response.status, body, f"GET {url}", response.headers)
            document: Object = await response.json(content_type=None) if body else {}
            return document

    async def _headers(self) -> dict[str, str]:
        if not self._credentials.valid:
            await self._refresh()
        headers: dict[str, str] = {}
        # Adds the token, and the project that pays for the request where there is one.
        self._credentials.apply(headers)
        return headers

    async def _refresh(self) -> None:
        async with self._refreshing:
            await asyncio.to_thread(_refresh, self._credentials)


def _refresh(credentials: Any) -> None:
    from google.auth.transport.requests import Request

    credentials.refresh(Request())
