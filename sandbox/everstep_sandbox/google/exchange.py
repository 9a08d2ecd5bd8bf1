"""A request to one of Google's APIs, apart from the server that carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.google import errors


@dataclass(frozen=True)
class Request:
    """One call. `path` is decoded; `caller` is the email of whose token came with it, "" for the project's owner."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    body: bytes
    address: str
    caller: str = ""

    def first(self, name: str, default: str = "") -> str:
        """A query parameter's first value."""
        return (self.query.get(name) or [default])[0]

    def document(self) -> dict[str, Any]:
        """The JSON body, {} when there is none. Raises GoogleError (400) when it is not an object."""
        if not self.body.strip():
            return {}
        try:
            document = json.loads(self.body)
        except ValueError:
            raise errors.bad_field("", "Invalid JSON payload received. Unexpected token.") from None
        if not isinstance(document, dict):
            raise errors.bad_field("", "Invalid JSON payload received. Expected an object.")
        return document
