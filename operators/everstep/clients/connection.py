"""Connections of an event loop that outlive the credentials they were opened with.

Client libraries of GKE put a token into a client once, and tokens last for an hour. So a connection that the service no
longer knows is put aside and a new one is opened for the requests to come; what is under way on the old one, such as a
watch, goes on, because services look at credentials only when a request begins. The last user closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


class Connection:
    """One opened client of a library, and how many requests use it."""

    def __init__(self, context: AbstractAsyncContextManager[Any], client: Any) -> None:
        self.client = client
        self.users = 0
        self.retired = False
        self._context: AbstractAsyncContextManager[Any] | None = context

    async def close(self) -> None:
        """Close it, once; requests that are under way on it fail."""
        context, self._context = self._context, None
        if context is not None:
            await context.__aexit__(None, None, None)


class Connections:
    """The present connection of one service, opened when it is first used, once for all who ask at that moment.

    :param open_client: opens, as an asynchronous context, a library's client with fresh credentials
    """

    def __init__(self, open_client: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._open_client = open_client
        self._opening = asyncio.Lock()
        self._present: Connection | None = None
        self._retired: set[Connection] = set()

    @asynccontextmanager
    async def using(self) -> AsyncIterator[Connection]:
        """Use the present connection for one request. Raises what opening it raises."""
        connection = await self._opened()
        connection.users += 1
        try:
            yield connection
        finally:
            connection.users -= 1
            if connection.retired and not connection.users:
                self._retired.discard(connection)
                await connection.close()

    async def renew(self, refused: Connection | None) -> None:
        """Let the next request open a connection with fresh credentials, unless another request has seen to that.

        :param refused: the connection whose credentials were refused; None stands for the present one
        """
        connection = self._present
        if connection is None or (refused is not None and refused is not connection):
            return
        self._present = None
        connection.retired = True
        if connection.users:
            self._retired.add(connection)
        else:
            await connection.close()

    async def close(self) -> None:
        """Close everything, also under requests that are under way."""
        async with self._opening:
            connections = [*self._retired, *([self._present] if self._present is not None else [])]
            self._present = None
            self._retired.clear()
            for connection in connections:
                await connection.close()

    async def _opened(self) -> Connection:
        if self._present is not None:
            return self._present
        async with self._opening:
            if self._present is None:
                context = self._open_client()
                self._present = Connection(context, await context.__aenter__())
            return self._present
