"""Errors in the JSON shape of Google's APIs."""

from __future__ import annotations

from typing import Any

_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
_STATUSES = {code: status for status, code in _CODES.items() if status not in ("FAILED_PRECONDITION", "ABORTED")}


class GoogleError(Exception):
    """A request that is refused: canonical status (its HTTP code follows), a sentence, and details."""

    def __init__(self, status: str, message: str, *details: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.code = _CODES[status]
        self.message = message
        self.details = details

    def document(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


def of_code(code: int, message: str) -> GoogleError:
    """The error that an HTTP status stands for; 500 for one that stands for none."""
    return GoogleError(_STATUSES.get(code, "INTERNAL"), message)


def invalid(message: str) -> GoogleError:
    return GoogleError("INVALID_ARGUMENT", message)


def bad_field(field: str, description: str) -> GoogleError:
    """400 for a body that does not fit the request's type, as Google's front end words it."""
    detail = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": field, "description": description} if field else {"description": description}],
    }
    return GoogleError("INVALID_ARGUMENT", description, detail)


def denied(permission: str, resource: str) -> GoogleError:
    return GoogleError("PERMISSION_DENIED", f'Required "{permission}" permission(s) for "{resource}".')


def service_disabled(service: str, title: str, project: str, number: str) -> GoogleError:
    """403 of an API that the project has not enabled."""
    url = f"https://console.developers.google.com/apis/api/{service}/overview?project={project}"
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
        "metadata": {
            "service": service,
            "serviceTitle": title,
            "consumer": f"projects/{number}",
            "containerInfo": number,
            "activationUrl": url,
        },
    }
    help_ = {
        "@type": "type.googleapis.com/google.rpc.Help",
        "links": [{"description": "Google developers console API activation", "url": url}],
    }
    message = (
        f"{title} has not been used in project {project} before or it is disabled. Enable it by visiting {url} then "
        "retry. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and "
        "retry."
    )
    return GoogleError("PERMISSION_DENIED", message, info, help_)
