"""Cloud Storage's JSON API over the session that its client library has open: for what that lacks or does slowly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

from everstep.clients import errors
from everstep.clients.errors import RemoteError, Unavailable
from everstep.clients.retrying import Backoff, Refresh, Tries

REQUEST_SECONDS = 30.0


class JsonApi:
    """Requests to the API, each tried again after passing failures. Raises the errors of `everstep.clients.errors`.

    :param open_client: returns the opened `google.cloud.storage.Client`
    :param busy: told how many seconds to hold back when the service says that it is asked too much
    """

    def __init__(
        self,
        open_client: Callable[[], Any],
        *,
        backoff: Backoff | None = None,
        busy: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._open_client = open_client
        self.backoff = backoff or Backoff()
        self._busy = busy
        self.clock_ahead: timedelta | None = None
        """How far this machine's clock is ahead of the service's, as its first answer told; None until then."""

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        where: str = "",
    ) -> dict[str, Any]:
        """Send a request until there is an answer or another try is useless, and return the answer's document."""
        tries = Tries(self.backoff)
        where = where or f"{method} {path}"
        while True:
            try:
                answer = self.send_once(method, path, where, params=dict(query or {}), json=body)
                document: dict[str, Any] = answer.json() if answer.content else {}
                return document
            except Unavailable as failure:
                if failure.status == 501:
                    raise errors.Invalid(failure.message, status=501) from failure
                self.hold_back(tries, failure)

    def send_once(self, method: str, path: str, where: str, **more: Any) -> Any:
        """Send a request and return the answer as the session gives it."""
        with errors.translated(where):
            answer = self._session.request(method, self._base_url + path, timeout=REQUEST_SECONDS, **more)
        if self.clock_ahead is None:
            self.clock_ahead = _ahead_of(answer.headers.get("Date"))
        if answer.status_code >= 300:
            raise errors.of_body(answer.status_code, answer.content, where, answer.headers)
        return answer

    def hold_back(self, tries: Tries, failure: RemoteError) -> None:
        """Wait before another try. Raises the failure when that is useless."""
        wait = tries.after(failure)
        seconds = 0.0 if isinstance(wait, Refresh) else wait
        if failure.status in (429, 503):
            self._busy(seconds)
        time.sleep(seconds)

    @cached_property
    def _base_url(self) -> str:
        return str(self._open_client()._connection.API_BASE_URL).rstrip("/")

    @cached_property
    def _session(self) -> Any:
        session = self._open_client()._http
        if session.trust_env:
            # Proxies and certificates are looked up in the environment once: at each request that costs as much as
            # the request. All go to one host.
            settings = session.merge_environment_settings(self._base_url, {}, None, None, None)
            session.proxies.update(settings["proxies"])
            session.verify, session.cert = settings["verify"], settings["cert"]
            session.trust_env = False
        return session


def _ahead_of(date: str | None) -> timedelta | None:
    try:
        return None if date is None else datetime.now(UTC) - parsedate_to_datetime(date)
    except (ValueError, TypeError):
        return None


def place(bucket: str, kind: str, name: str = "") -> str:
    """Return the path of a bucket's objects, folders or operations, or of one of them."""
    path = f"/storage/v1/b/{quote(bucket, safe='')}/{kind}"
    return f"{path}/{quote(name, safe='')}" if name else path
