"""Bodies of requests to GKE against Google's own types: unknown fields are refused, enumerations become words."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from everstep_sandbox.google import errors

Object = dict[str, Any]

_UNKNOWN = re.compile(r'has no field named "([^"]+)" at "\w+\.?([\w.\[\]]*)"')


def parsed(kind: str, document: Object) -> Object:
    """The document as google.container.v1's `kind` writes it: lower camel case, enumerations as words.

    Raises GoogleError (400) with what Google's front end says of an unknown field or a value of another type.
    """
    from google.protobuf import json_format

    message = _type(kind)()
    try:
        json_format.ParseDict(document, message)
    except json_format.ParseError as problem:
        raise _refusal(str(problem)) from None
    found: Object = json_format.MessageToDict(message)
    return found


@cache
def _type(kind: str) -> Any:
    from google.cloud import container_v1

    return getattr(container_v1, kind).pb()


def _refusal(text: str) -> errors.GoogleError:
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        # The innermost "Failed to parse x field" tells the path; what is behind it the reason.
        path = ".".join(re.findall(r"Failed to parse (\w+) field", text))
        reason = text.rpartition("field: ")[2].splitlines()[0].rstrip(".")
        return errors.bad_field(path, f"Invalid value at '{path}': {reason}")
    name, place = unknown.groups()
    where = f" at '{place}'" if place else ""
    return errors.bad_field(place, f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.')
