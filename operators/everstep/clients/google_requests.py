"""Requests to Google Cloud's REST APIs: addresses, tries, and errors of `everstep.clients.errors`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.clients import errors
from everstep.clients.errors import Forbidden, RemoteError, Unavailable
from everstep.clients.retrying import Backoff, Refresh, Tries

Object = dict[str, Any]

REQUEST_SECONDS = 60.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# What an API answers that the project has not enabled, and for a minute or so after it was.
SERVICE_DISABLED = "SERVICE_DISABLED"


@dataclass(frozen=True)
class Endpoints:
    """Addresses of Google's APIs. Each that is empty is Google's own.

    :param google: one address for all APIs but storage
    :param storage: of Cloud Storage
    """

    google: str = ""
    storage: str = ""

    def url(self, service: str, path: str) -> str:
        """Return the address of a path, which starts with `/`, of a service such as `container`."""
        base = self.storage if service == "storage" else self.google
        return (base or f"https://{service}.googleapis.com").rstrip("/") + path


class GoogleRequests:
    """A session with fresh credentials, opened at the first request.

    Every request is tried again after passing failures, changes too: whoever makes one has to be content when a try
    whose answer was lost has made it already (then the next one is a Conflict or changes nothing).

    :param open_session: opens a `google.auth.transport.requests.AuthorizedSession`
    """

    def __init__(
        self, open_session: Callable[[], Any], endpoints: Endpoints, *, backoff: Backoff | None = None
    ) -> None:
        self._open_session = open_session
        self._endpoints = endpoints
        self._backoff = backoff or Backoff()
        self._session: Any = None

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def get(self, service: str, path: str, query: Mapping[str, Any] | None = None) -> Object:
        """Return a document."""
        return self.send("GET", service, path, query=query)

    def find(self, service: str, path: str, query: Mapping[str, Any] | None = None) -> Object | None:
        """Return a document, or None when there is none."""
        try:
            return self.get(service, path, query)
        except errors.NotFound:
            return None

    def pages(self, service: str, path: str, key: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Return what all pages of a list hold under a key."""
        token = ""
        while True:
            page = self.get(service, path, {**(query or {}), **({"pageToken": token} if token else {})})
            yield from page.get(key) or []
            token = page.get("nextPageToken") or ""
            if not token:
                return

    def send(
        self,
        method: str,
        service: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Object:
        """Send a request until there is an answer or another try is useless, and return the answer's document."""
        tries = Tries(self._backoff)
        where = f"{method} {self._endpoints.url(service, path)}"
        while True:
            try:
                return self._send_once(method, self._endpoints.url(service, path), body, query, where)
            except Exception as failure:
                error = errors.translate(failure, where)
                if error is None:
                    raise
                wait = tries.after(_worth_another_try(error, method))
            if wait is Refresh.CREDENTIALS:
                self.close()
            else:
                time.sleep(wait)

    def _send_once(
        self, method: str, url: str, body: Object | None, query: Mapping[str, Any] | None, where: str
    ) -> Object:
        if self._session is None:
            self._session = self._open_session()
        response = self._session.request(
            method, url, params=dict(query or {}), json=body, timeout=REQUEST_SECONDS, allow_redirects=False
        )
        if response.status_code >= 300:
            raise errors.of_body(response.status_code, response.content, where, response.headers)
        document: Object = response.json() if response.content else {}
        return document


def _worth_another_try(failure: RemoteError, method: str) -> RemoteError:
    """An API that was enabled a moment ago still refuses; only who changes something knows that it was enabled."""
    if isinstance(failure, Forbidden) and failure.reason == SERVICE_DISABLED and method != "GET":
        return Unavailable(failure.message, status=failure.status, reason=failure.reason)
    return failure
