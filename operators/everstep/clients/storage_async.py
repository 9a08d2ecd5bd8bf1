"""One bucket, for triggers (gcloud-aio-storage, which the Google provider's asynchronous hook opens)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from everstep.clients import errors
from everstep.clients.connection import Connection, Connections
from everstep.clients.requests import (
    LISTED_FIELDS,
    Answer,
    Listing,
    ListRequest,
    ReadRequest,
    Request,
    Result,
    Steps,
    StoredObject,
    listed_object,
)
from everstep.clients.retrying import Backoff, tried

REQUEST_SECONDS = 30
# A run of thousands of nodes has as many reports: reading them must leave the event loop room for other work.
REQUESTS_AT_ONCE = 8
# Answers with so many objects are taken in within a millisecond.
FEW_ENTRIES = 200


class AsyncBucketClient:
    """A bucket in an event loop: reads only. Every method raises the errors of `everstep.clients.errors`.

    :param open_client: opens, as an asynchronous context, a `gcloud.aio.storage.Storage` with fresh credentials
    """

    def __init__(
        self,
        open_client: Callable[[], AbstractAsyncContextManager[Any]],
        bucket: str,
        *,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = bucket
        self._connections = Connections(open_client)
        self._backoff = backoff or Backoff()
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def __aenter__(self) -> AsyncBucketClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def list_level(self, prefix: str) -> Listing:
        """List one level below a prefix that ends with `/` (or is empty)."""
        objects = []
        folders: set[str] = set()
        token = ""
        while True:
            parameters = {
                "prefix": prefix,
                "delimiter": "/",
                "includeFoldersAsPrefixes": "true",
                "fields": LISTED_FIELDS,
                # Decoded in the event loop: larger pages would block it.
                "maxResults": "300",
                **({"pageToken": token} if token else {}),
            }
            page = await self._page(prefix, parameters)
            objects += [listed_object(item["name"].removeprefix(prefix), item) for item in page.get("items", [])]
            folders |= {folder.removeprefix(prefix).rstrip("/") for folder in page.get("prefixes", [])}
            token = page.get("nextPageToken") or ""
            if not token:
                return Listing(tuple(each for each in objects if each.name), tuple(sorted(folders - {""})))

    async def read(self, name: str) -> StoredObject | None:
        """Return an object, or None when there is none. Its generation is not asked for and reads 0."""
        try:
            body = await self._tried(
                f"read gs://{self.name}/{name}",
                lambda client: client.download(self.name, name, timeout=REQUEST_SECONDS),
            )
        except errors.NotFound:
            return None
        return StoredObject(name, body, 0)

    async def run(self, steps: Steps[Result]) -> Result:
        """Carry out a reading, a few requests of each batch at once, and return its result."""
        answers: list[Answer] | None = None
        while True:
            # Judging the listings of thousands of nodes takes long: not in the event loop.
            large = answers is not None and sum(map(_entries, answers)) > FEW_ENTRIES
            is_done, value = await asyncio.to_thread(_next, steps, answers) if large else _next(steps, answers)
            if is_done:
                result: Result = value
                return result
            answers = []
            for first in range(0, len(value), REQUESTS_AT_ONCE):
                some = value[first : first + REQUESTS_AT_ONCE]
                answers += await self._answers(some)

    async def _answers(self, requests: Sequence[Request]) -> list[Answer]:
        asked = [asyncio.create_task(self._answer(request)) for request in requests]
        try:
            return await asyncio.gather(*asked)
        except Exception:
            # Otherwise the others would be tried on, also when the client is closed.
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            raise

    async def _answer(self, request: Request) -> Answer:
        if isinstance(request, ListRequest):
            return await self.list_level(request.prefix)
        assert isinstance(request, ReadRequest)
        return await self.read(request.name)

    async def _page(self, prefix: str, parameters: dict[str, str]) -> Any:
        return await self._tried(
            f"list gs://{self.name}/{prefix}",
            lambda client: client.list_objects(self.name, params=parameters, timeout=REQUEST_SECONDS),
        )

    async def _tried(self, where: str, ask: Callable[[Any], Any]) -> Any:
        used: Connection | None = None

        async def asked() -> Any:
            nonlocal used
            async with self._requests, self._connections.using() as used:
                return await ask(used.client)

        return await tried(asked, lambda: self._connections.renew(used), where, self._backoff)


def _next(steps: Steps[Any], answers: list[Answer] | None) -> tuple[bool, Any]:
    """Return whether a reading is done, and its result or its next batch of requests."""
    try:
        return False, next(steps) if answers is None else steps.send(answers)
    except StopIteration as done:
        return True, done.value


def _entries(answer: Answer) -> int:
    return len(answer.objects) + len(answer.folders) if isinstance(answer, Listing) else 1
