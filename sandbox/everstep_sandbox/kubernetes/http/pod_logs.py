"""pods/log: what the kubelet wrote for a container, read from its files and followed while it runs.

The kubelet writes one line per entry, `<RFC 3339 time> <stdout|stderr> <F|P> <text>` (the CRI format; P marks a part
of a longer line), to nodes/<node>/pods/<pod uid>/logs/<container>.log.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from pathlib import Path

from aiohttp import web

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.http.requests import Call
from everstep_sandbox.kubernetes.objects import Object, now, parse_timestamp
from everstep_sandbox.kubernetes.store import Store

# Files give no event without a watcher thread per file; a follower is a person or a test that can wait this long.
_FOLLOW_INTERVAL_SECONDS = 0.1
_READ_BYTES = 1 << 20


class LogReader:
    """Serves logs of the pods in one sandbox directory."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answers GET pods/<name>/log. Raises ApiError 400 for an unknown container or one that has not started."""
        pod = self._store.peek("pods", call.namespace, call.name or "")
        if pod is None:
            raise errors.not_found(call.resource, call.name or "")
        container = _container(pod, call.query.get("container"))
        if call.flag("previous"):
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{call.name}" not found')
        follow = call.flag("follow")
        path = self._path(pod, container)
        if path is None or not path.exists():
            self._check_started(pod, container)
        view = _View(call)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(call.request)
        with contextlib.suppress(ConnectionError):
            await self._send(pod, path, container, view, response, follow)
        return response

    async def _send(
        self, pod: Object, path: Path | None, container: str, view: _View, response: web.StreamResponse, follow: bool
    ) -> None:
        position = 0
        partial = b""
        first = True
        while not view.is_full:
            # Asked before reading, so that what is written up to the end is still read.
            running = follow and self._is_running(pod, container)
            data = _read_from(path, position, None if first else _READ_BYTES)
            position += len(data)
            lines = (partial + data).split(b"\n")
            partial = lines.pop()
            text = view.render(lines, is_first=first)
            first = False
            if text:
                await response.write(text)
            if not data:
                if not running:
                    return
                await asyncio.sleep(_FOLLOW_INTERVAL_SECONDS)

    def _path(self, pod: Object, container: str) -> Path | None:
        node: str | None = pod["spec"].get("nodeName")
        if not node:
            return None
        uid: str = pod["metadata"]["uid"]
        return self._directory / "nodes" / node / "pods" / uid / "logs" / f"{os.path.basename(container)}.log"

    def _is_running(self, pod: Object, container: str) -> bool:
        meta = pod["metadata"]
        current = self._store.peek("pods", meta["namespace"], meta["name"])
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            return False
        status = current.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return False
        for found in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            if found["name"] == container:
                return "terminated" not in (found.get("state") or {})
        return True

    def _check_started(self, pod: Object, container: str) -> None:
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {name} does not have a host assigned")
        status = pod.get("status") or {}
        for found in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            state = found.get("state") or {}
            if found["name"] == container and ("running" in state or "terminated" in state):
                return
        reason = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
        raise errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def _read_from(path: Path | None, position: int, limit: int | None) -> bytes:
    if path is None or not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(position)
        return file.read(limit)


def _container(pod: Object, asked: str | None) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [container["name"] for container in spec.get("containers") or ()]
    init_names = [container["name"] for container in spec.get("initContainers") or ()]
    if asked:
        if asked not in names + init_names:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(names) == 1 and not init_names:
        return str(names[0])
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in names:
        return str(default)
    if len(names) == 1:
        return str(names[0])
    raise errors.bad_request(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        + (f" or one of the init containers: [{' '.join(init_names)}]" if init_names else "")
    )


class _View:
    """What of a log is shown: since when, how many lines at the end, with times or not, how many bytes."""

    def __init__(self, call: Call) -> None:
        self._timestamps = call.flag("timestamps")
        self._tail = call.integer("tailLines")
        self._left = call.integer("limitBytes")
        self._since: datetime.datetime | None = None
        seconds = call.integer("sinceSeconds")
        if seconds is not None:
            self._since = now() - datetime.timedelta(seconds=seconds)
        elif call.query.get("sinceTime"):
            try:
                self._since = parse_timestamp(call.query["sinceTime"])
            except ValueError:
                raise errors.bad_request(f"sinceTime: found {call.query['sinceTime']!r}, expected RFC 3339") from None

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def render(self, lines: list[bytes], *, is_first: bool) -> bytes:
        """The text of the lines that are shown; `tailLines` counts from the end of what is there at first."""
        entries = [entry for entry in map(_parse, lines) if entry and self._is_recent(entry[0])]
        if is_first and self._tail is not None:
            entries = _last_whole_lines(entries, self._tail)
        text = b"".join(
            (moment + b" " if self._timestamps else b"") + content + (b"\n" if whole else b"")
            for moment, whole, content in entries
        )
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _is_recent(self, moment: bytes) -> bool:
        if self._since is None:
            return True
        try:
            return parse_timestamp(moment.decode()) >= self._since
        except ValueError:
            return True


def _parse(line: bytes) -> tuple[bytes, bool, bytes] | None:
    parts = line.split(b" ", 3)
    if len(parts) < 3:
        return None
    return parts[0], parts[2] != b"P", parts[3] if len(parts) > 3 else b""


def _last_whole_lines(entries: list[tuple[bytes, bool, bytes]], count: int) -> list[tuple[bytes, bool, bytes]]:
    if count <= 0:
        return []
    seen = 0
    for index in range(len(entries) - 1, -1, -1):
        if entries[index][1]:
            seen += 1
            if seen > count:
                return entries[index + 1 :]
    return entries
