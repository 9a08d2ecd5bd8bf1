"""WATCH: an event stream per client, fed by the store's history. An event is encoded once for all its watchers."""

from __future__ import annotations

import asyncio
import json
import random

from aiohttp import web

from everstep_sandbox.kubernetes.errors import ApiError, bad_request
from everstep_sandbox.kubernetes.history import Change, Subscription
from everstep_sandbox.kubernetes.http.listing import presented
from everstep_sandbox.kubernetes.http.requests import Call
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.selectors import Predicate
from everstep_sandbox.kubernetes.store import Store

_BOOKMARK_SECONDS = 60.0
# A real server ends a watch without timeoutSeconds after 30 to 60 minutes, drawn at random.
_DEFAULT_TIMEOUT_SECONDS = (1800, 3600)

_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


class Watches:
    """All open watches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[Subscription, ApiError | None] = {}
        self._stalled: set[Subscription] = set()

    @property
    def count(self) -> int:
        return len(self._open)

    def drop_all(self, error: ApiError | None = None) -> int:
        """Ends every watch, with an ERROR event first where one is given; returns how many."""
        for subscription in list(self._open):
            self._open[subscription] = error
            subscription.close()
        return len(self._open)

    def stall_all(self) -> int:
        """Lets nothing more come on every watch that is open, without closing it; returns how many."""
        self._stalled.update(self._open)
        for subscription in self._open:
            subscription.close()
        return len(self._open)

    async def serve_silence(self, request: web.Request) -> web.StreamResponse:
        """Answers a watch with headers only; ends when the client goes."""
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def serve(self, call: Call) -> web.StreamResponse:
        """Streams events until the time is up, the client goes or the watch is dropped."""
        response = web.StreamResponse(headers=_HEADERS)
        try:
            subscription, first = self._begin(call)
        except ApiError as error:
            if error.code != 410:
                raise
            await response.prepare(call.request)
            await response.write(_line("ERROR", error.status()))
            return response
        self._open[subscription] = None
        try:
            await response.prepare(call.request)
            if first:
                await response.write(first)
            await self._stream(call, subscription, response)
            if subscription in self._stalled:
                await asyncio.Event().wait()
        except ConnectionError:
            pass
        finally:
            subscription.close()
            self._stalled.discard(subscription)
            del self._open[subscription]
        return response

    def _begin(self, call: Call) -> tuple[Subscription, bytes]:
        """Subscribes, and encodes the present objects where the client wants them first."""
        asked = _asked_version(call)
        with_initial = asked == 0 or call.flag("sendInitialEvents")
        since = None if with_initial else asked
        subscription = self._store.subscribe([call.resource.plural], namespace=call.namespace, since=since)
        lines: list[bytes] = []
        if with_initial and call.query.get("sendInitialEvents") != "false":
            present = self._store.list(call.resource.plural, call.namespace, where=call.predicate())
            lines = [_line("ADDED", presented(call, obj, self._store.version)) for obj in present]
            if call.flag("sendInitialEvents"):
                lines.append(_bookmark(call, self._store.version, ends_initial=True))
        return subscription, b"".join(lines)

    async def _stream(self, call: Call, subscription: Subscription, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + (call.integer("timeoutSeconds") or random.uniform(*_DEFAULT_TIMEOUT_SECONDS))
        bookmarks = call.flag("allowWatchBookmarks")
        # A watch from a version that is still to come is silent until then, as a real server's is.
        since = _asked_version(call)
        next_bookmark = loop.time() + _BOOKMARK_SECONDS
        predicate = call.predicate()
        while True:
            now = loop.time()
            if now >= ends:
                if bookmarks and self._store.version >= since:
                    await response.write(_bookmark(call, self._store.version))
                return
            try:
                async with asyncio.timeout(min(ends, next_bookmark if bookmarks else ends) - now):
                    await subscription.wait()
            except TimeoutError:
                if bookmarks and loop.time() >= next_bookmark:
                    if self._store.version >= since:
                        await response.write(_bookmark(call, self._store.version))
                    next_bookmark = loop.time() + _BOOKMARK_SECONDS
                continue
            except ApiError as error:
                await response.write(_line("ERROR", error.status()))
                return
            changes = subscription.drain()
            if not changes or subscription in self._stalled:
                dropped_with = self._open.get(subscription)
                if dropped_with is not None:
                    await response.write(_line("ERROR", dropped_with.status()))
                return
            lines = b"".join(_event(call, change, predicate) for change in changes if change.version > since)
            if lines:
                await response.write(lines)


def _asked_version(call: Call) -> int:
    text = call.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"resourceVersion: Invalid value: {text!r}: expected a whole number")
    return int(text)


def _event(call: Call, change: Change, predicate: Predicate | None) -> bytes:
    """The event line of a change as seen through a selector; empty where the watcher sees none of it."""
    kind: str = change.type
    obj = change.object
    if predicate is not None:
        was = change.previous is not None and predicate(change.previous)
        stays = predicate(change.object)
        if change.type == "DELETED":
            if not was and not stays:
                return b""
        elif was and not stays:
            gone_from_view = dict(change.previous or {})
            gone_from_view["metadata"] = {
                **gone_from_view["metadata"],
                "resourceVersion": obj["metadata"]["resourceVersion"],
            }
            return _line("DELETED", presented(call, gone_from_view, change.version))
        elif not stays:
            return b""
        elif not was:
            kind = "ADDED"
    if call.form:
        return _line(kind, presented(call, obj, change.version))
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), change.encoded)


def _line(kind: str, obj: Object) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def _bookmark(call: Call, version: int, *, ends_initial: bool = False) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
    if ends_initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj: Object = {"kind": call.resource.kind, "apiVersion": call.resource.api_version, "metadata": meta}
    if call.form == "Table":
        obj = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(version)},
            "columnDefinitions": [],
            "rows": [{"cells": [], "object": obj}],
        }
    return _line("BOOKMARK", obj)
