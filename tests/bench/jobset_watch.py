"""A watch on JobSets that remembers when it was told what."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from tests.bench.api_server import JOBSETS, ApiServer, Object


class JobSetWatch:
    """All states of the JobSets of a namespace from the beginning of the block to its end, with times."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._seen: list[tuple[float, Object]] = []
        self._news = threading.Condition()
        self._failure: Exception | None = None
        self._ended = False
        self._stream: Any = None

    def __enter__(self) -> Self:
        path = f"{JOBSETS}/namespaces/{self._namespace}/jobsets"
        version = self._api.call("GET", path)["metadata"]["resourceVersion"]
        self._stream = self._api.stream(f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=7200")
        threading.Thread(target=self._read, name="watch", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Closing it here would wait for the thread that reads it. The API server ends it when it ends.
        self._ended = True

    def first(self, name: str, holds: Callable[[Object], bool]) -> float:
        """Return when (seconds since the epoch) a JobSet was first seen so. Raises LookupError when it never was."""
        for at, found in list(self._seen):
            if found["metadata"]["name"] == name and "status" in found and holds(found):
                return at
        raise LookupError(f"JobSet {name} was not seen so; its last state: {self._last(name)}")

    def until(self, name: str, holds: Callable[[Object], bool], seconds: float) -> float:
        """Wait until a JobSet is seen so. Raises TimeoutError after some seconds."""
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                try:
                    return self.first(name, holds)
                except LookupError as missing:
                    if self._failure is not None:
                        raise RuntimeError("the bench's own watch has ended") from self._failure
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"after {seconds:.0f} s: {missing}") from None
                self._news.wait(1.0)

    def _last(self, name: str) -> Object | None:
        states: list[Object] = [found.get("status", {}) for _, found in self._seen if found["metadata"]["name"] == name]
        return states[-1] if states else None

    def _read(self) -> None:
        try:
            for line in self._stream.iter_lines(chunk_size=None):
                at = time.time()
                if not line:
                    continue
                with self._news:
                    self._seen.append((at, json.loads(line)["object"]))
                    self._news.notify_all()
            self._failure = EOFError("the API server ended the watch")
        except Exception as failure:
            if not self._ended:
                self._failure = failure
        with self._news:
            self._news.notify_all()
