"""What can go wrong with a remote service, whichever client library said it.

RemoteError
  NotConfigured     no request was made: a kubeconfig, a connection or credentials that are missing or wrong
  Unauthenticated   401, after one refresh of the credentials
  Forbidden         403
  NotFound          404
  Conflict          409, 412: somebody else was there, or was faster
  Gone              410: a watch's or a list's version is too old
  Invalid           400, 422 and the like: the request itself is wrong
  Unavailable       429, 5xx, resets, time-outs: worth another try
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RemoteError(Exception):
    """A request that failed. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotConfigured(RemoteError):
    """How the service is reached is not said, or not rightly."""


class Unauthenticated(RemoteError):
    """The service does not know the credentials."""


class Forbidden(RemoteError):
    """The service knows the credentials and refuses."""


class NotFound(RemoteError):
    """There is no such object."""


class Conflict(RemoteError):
    """The object exists already, or is not in the version that the request expected."""


class Gone(RemoteError):
    """The version that was asked for is no longer kept."""


class Invalid(RemoteError):
    """The service does not take the request as it is."""


class Unavailable(RemoteError):
    """The service could not be reached or could not answer now."""


_BY_STATUS: dict[int, type[RemoteError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: Conflict,
    408: Unavailable,
    429: Unavailable,
}
# Another try would be answered in the same way.
FINAL_REFUSALS = (NotConfigured, Unauthenticated, Forbidden, NotFound, Invalid)
# Where client libraries say that what they were given to log in with is missing or wrong.
_CONFIGURATION_LIBRARIES = ("kubernetes.config", "kubernetes_asyncio.config", "yaml", "binascii")
_CONFIGURATION_ERRORS = ("AirflowNotFoundException", "DefaultCredentialsError", "MalformedError")
# Libraries whose own exceptions mean that no answer came.
_NETWORK_LIBRARIES = ("urllib3", "aiohttp", "requests", "http.client", "ssl")


def of_status(status: int, message: str, *, reason: str = "", retry_after: float | None = None) -> RemoteError:
    """Return the error that an HTTP status stands for."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = Unavailable if status >= 500 else Invalid
    return kind(message, status=status, reason=reason, retry_after=retry_after)


def of_body(status: int, body: bytes | str, where: str, headers: Any = None) -> RemoteError:
    """Return the error of a Kubernetes or Google answer, with the service's own sentence in it."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    reason = ""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict):
        inner = document.get("error")
        source = inner if isinstance(inner, dict) else document
        text = str(source.get("message") or text)
        reason = str(source.get("reason") or "") if source is document else _google_reason(source)
        if status == 422 and _is_about_uid(source):
            # Kubernetes answers a patch that names the uid of an object that is gone as if the uid were to be changed.
            return Conflict(f"{where}: another object has that name by now: {text.strip()[:500]}", status=status)
    return of_status(
        status, f"{where}: HTTP {status}: {text.strip()[:500]}", reason=reason, retry_after=_retry_after(headers)
    )


def _google_reason(source: dict[str, Any]) -> str:
    """Return the most exact word for what went wrong: SERVICE_DISABLED, FAILED_PRECONDITION, conditionNotMet …"""
    said = [*(source.get("details") or ()), *(source.get("errors") or ())]
    reasons = [str(one["reason"]) for one in said if isinstance(one, dict) and one.get("reason")]
    return reasons[0] if reasons else str(source.get("status") or "")


def _is_about_uid(status: dict[str, Any]) -> bool:
    causes = (status.get("details") or {}).get("causes") or ()
    return any(cause.get("field") == "metadata.uid" for cause in causes)


def translate(failure: BaseException, where: str) -> RemoteError | None:
    """Return the error that a client library's exception stands for; None when it is none of theirs."""
    if isinstance(failure, RemoteError):
        return failure
    status = getattr(failure, "status", None)
    if isinstance(status, int) and hasattr(failure, "body"):
        if status == 0:
            return Unavailable(f"{where}: {getattr(failure, 'reason', failure)}")
        body = getattr(failure, "body", None)
        return of_body(status, body or str(getattr(failure, "reason", "")), where, getattr(failure, "headers", None))
    module = type(failure).__module__
    if module.startswith("google.") and isinstance(cause := getattr(failure, "cause", None), Exception):
        # Google's libraries give up after a while, and wrap what was amiss at the last try.
        return translate(cause, where) or Unavailable(f"{where}: {cause}")
    code = getattr(failure, "code", None) if module.startswith("google.") else None
    if isinstance(code, int):
        answer = getattr(failure, "response", None)
        if content := getattr(answer, "content", b""):
            return of_body(int(code), content, where, getattr(answer, "headers", None))
        return of_status(int(code), f"{where}: {failure}")
    answered = getattr(getattr(failure, "response", None), "status_code", None)
    if module.startswith("google.") and isinstance(answered, int):
        return of_status(answered, f"{where}: {failure}")
    if isinstance(status, int) and module.startswith("aiohttp"):
        return of_status(status, f"{where}: {failure}", retry_after=_retry_after(getattr(failure, "headers", None)))
    if type(failure).__name__ in _CONFIGURATION_ERRORS or module.startswith(_CONFIGURATION_LIBRARIES):
        return NotConfigured(f"{where}: {' '.join(str(failure).split())}")
    if isinstance(failure, FileNotFoundError | PermissionError | IsADirectoryError):
        return NotConfigured(f"{where}: {failure.filename}: {failure.strerror}")
    if module.startswith("google.auth"):
        return Unauthenticated(f"{where}: {failure}", status=401)
    if isinstance(failure, OSError | TimeoutError) or module.startswith(_NETWORK_LIBRARIES):
        return Unavailable(f"{where}: {type(failure).__name__}: {failure}")
    return None


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Let exceptions of client libraries out of the block as the errors that they stand for."""
    try:
        yield
    except Exception as failure:
        error = translate(failure, where)
        if error is None or error is failure:
            raise
        raise error from failure


def _retry_after(headers: Any) -> float | None:
    value = headers.get("Retry-After") if hasattr(headers, "get") else None
    try:
        return None if value is None else max(float(value), 0.0)
    except ValueError:
        return None
