"""A request and a response of the storage API, apart from the server that carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everstep_sandbox.storage import errors


@dataclass(frozen=True)
class Request:
    """One call. `path` is raw (still percent-encoded), header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    caller: str = ""
    """Whose call it is: an email or a workload's principal; "" for the project's owner."""

    def flag(self, name: str) -> bool:
        """A boolean query parameter; absent is false."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str) -> int | None:
        """An integer query parameter, None when absent. Raises StorageError (400) for anything else."""
        text = self.query.get(name)
        if text is None or text == "":
            return None
        try:
            return int(text)
        except ValueError:
            raise errors.invalid(f"Invalid integer value '{text}' for parameter '{name}'.", name) from None

    def document(self) -> dict[str, Any]:
        """The JSON body, {} when there is none. Raises StorageError (400) when it is not an object."""
        if not self.body.strip():
            return {}
        try:
            document = json.loads(self.body)
        except ValueError:
            raise errors.StorageError(400, "parseError", "Parse Error: the body is not JSON.") from None
        if not isinstance(document, dict):
            raise errors.StorageError(400, "parseError", "Parse Error: the body is not a JSON object.")
        return document


@dataclass(frozen=True)
class FileRange:
    """`length` bytes of a file from `start`."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True)
class Response:
    """One answer; a document, bytes or a part of a file."""

    status: int = 200
    document: Mapping[str, Any] | None = None
    body: bytes = b""
    file: FileRange | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> tuple[bytes, dict[str, str]]:
        """Body and headers; a file range is not read here."""
        headers = dict(self.headers)
        if self.document is None:
            return self.body, headers
        headers.setdefault("Content-Type", "application/json; charset=UTF-8")
        return json.dumps(self.document, separators=(",", ":")).encode(), headers
