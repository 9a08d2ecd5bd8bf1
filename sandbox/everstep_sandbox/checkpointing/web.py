"""Small blocking HTTP calls with JSON, on the standard library alone: node processes must stay light."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

_TRIES = 6
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})


class WebError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, method: str, url: str, body: bytes) -> None:
        super().__init__(f"{method} {url}: {status} {body[:300].decode(errors='replace')}")
        self.status = status


def call(
    method: str,
    url: str,
    *,
    document: Any = None,
    data: bytes | None = None,
    timeout: float = 60,
    tries: int = _TRIES,
) -> bytes:
    """The body of the answer. Overload, server faults and lost connections are tried again with growing pauses.

    Raises WebError for any other answer than a success, OSError when nobody answers.
    """
    parts = urlsplit(url)
    body = json.dumps(document).encode() if document is not None else data
    headers = {"Content-Type": "application/json" if document is not None else "application/octet-stream"}
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    pause = 0.1
    for left in reversed(range(tries)):
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status < 300:
                return answer
            if response.status not in _RETRIED or not left:
                raise WebError(response.status, method, url, answer)
        except (OSError, http.client.HTTPException) as problem:
            if not left:
                raise OSError(f"{method} {url}: {problem}") from problem
        finally:
            connection.close()
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable: the last try returns or raises")


def call_json(method: str, url: str, **options: Any) -> Any:
    """As `call`, with a JSON answer; None when the answer is empty."""
    answer = call(method, url, **options)
    return json.loads(answer) if answer else None
