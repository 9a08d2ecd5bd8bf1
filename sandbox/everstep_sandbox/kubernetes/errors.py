"""Errors as the API reports them: a Status object with code, reason, message and details.

Texts follow those of kube-apiserver where clients are known to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.kubernetes.resources import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One finding about one field; reason is a metav1.CauseType such as FieldValueInvalid."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiError(Exception):
    """A refused or failed request: HTTP code, machine-readable reason, message, details."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """The metav1.Status object for the wire."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body


def _about(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "kind": resource.plural}
    if resource.group:
        details["group"] = resource.group
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _about(resource, name))


def no_such_path(path: str) -> ApiError:
    return ApiError(
        404,
        "NotFound",
        "the server could not find the requested resource",
        {"causes": [{"reason": "UnexpectedServerResponse", "message": f"404 page not found: {path}"}]},
    )


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, why: str | None = None) -> ApiError:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(resource, name))


def failed_precondition(resource: Resource, name: str, what: str, wanted: Any, found: str) -> ApiError:
    """409 for a deletion that is meant for another object; `what` is UID or ResourceVersion."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    happened = "deleted and then recreated" if what == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {kind} "{name}": the {what} in the precondition ({wanted}) does not match '
        f"the {what} in record ({found}). The object might have been {happened}"
    )
    return ApiError(409, "Conflict", message, {**_about(resource, name), "kind": resource.kind})


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _about(resource, name))


def webhook_denied(webhook: str, why: str) -> ApiError:
    """A refusal by a validating webhook (controller-runtime answers them with 403)."""
    return ApiError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {why}')


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with all findings; each is printed as `field: message`."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: dict[str, Any] = {"name": name, "kind": resource.kind}
    if resource.group:
        details["group"] = resource.group
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """410: the asked-for version is no longer in the history."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def method_not_allowed(message: str) -> ApiError:
    return ApiError(405, "MethodNotAllowed", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")
