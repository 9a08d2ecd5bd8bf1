"""Errors in the JSON shape of Google's storage API."""

from __future__ import annotations

from typing import Any


class StorageError(Exception):
    """A request that is refused: HTTP status, Google's reason word, a sentence, and where the fault lies."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        location: tuple[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.location = location
        self.headers = headers or {}

    def document(self) -> dict[str, Any]:
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.location is not None:
            detail["locationType"], detail["location"] = self.location
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


def invalid(message: str, parameter: str | None = None) -> StorageError:
    """400: a value that can't be used."""
    location = ("parameter", parameter) if parameter else None
    return StorageError(400, "invalid", message, location=location)


def required(parameter: str) -> StorageError:
    """400: something that must be given is not."""
    return StorageError(400, "required", f"Required parameter: {parameter}", location=("parameter", parameter))


def no_bucket() -> StorageError:
    return StorageError(404, "notFound", "The specified bucket does not exist.")


def no_object(bucket: str, name: str) -> StorageError:
    return StorageError(404, "notFound", f"No such object: {bucket}/{name}")


def no_folder(bucket: str, name: str) -> StorageError:
    return StorageError(404, "notFound", f"The folder {bucket}/{name} does not exist.")


def conflict(message: str) -> StorageError:
    return StorageError(409, "conflict", message)


def precondition_failed() -> StorageError:
    """412: a generation or metageneration is not the one that the request asked for."""
    return StorageError(
        412,
        "conditionNotMet",
        "At least one of the pre-conditions you specified did not hold.",
        location=("header", "If-Match"),
    )


def not_modified() -> StorageError:
    """304: a read that asked for anything but the generation that is there."""
    return StorageError(304, "notModified", "Not Modified")
