"""Deletions in batches, as Cloud Storage's JSON API takes them: multipart/mixed, each part a request of its own.

The library's own batches parse answers as e-mail, which costs more time than the bucket takes. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from everstep.clients import errors
from everstep.clients.bulk_requests import FoundObject
from everstep.clients.errors import RemoteError

_BOUNDARY = "everstep_batch"
CONTENT_TYPE = f'multipart/mixed; boundary="{_BOUNDARY}"'
_STATUS = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")
_IDENTIFIER = re.compile(rb"(?im)^content-id:[ \t]*<?response-([0-9]+)>?")
_RETRY_AFTER = re.compile(rb"(?im)^retry-after:[ \t]*([0-9]+)")
_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")


def deletions(bucket: str, objects: Sequence[FoundObject]) -> bytes:
    """Return the body that deletes objects, each in its generation."""
    path = f"/storage/v1/b/{quote(bucket, safe='')}/o/"
    parts = [
        f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"DELETE {path}{quote(each.name, safe='')}?ifGenerationMatch={each.generation} HTTP/1.1\r\n\r\n\r\n"
        for number, each in enumerate(objects)
    ]
    return ("".join(parts) + f"--{_BOUNDARY}--\r\n").encode()


def answers(content_type: str, body: bytes, count: int, where: str) -> list[RemoteError | None]:
    """Return what became of each of `count` parts: None for what was done.

    A part without an answer counts as Unavailable: it may have been done. Raises Unavailable for what is no answer
    to a batch.
    """
    found = re.search(r'boundary=(?:"([^"]+)"|([^;\s]+))', content_type)
    if found is None:
        raise errors.Unavailable(f"{where}: an answer of {content_type or 'no type'} to a batch")
    results: list[RemoteError | None] = [errors.Unavailable(f"{where}: a part was not answered")] * count
    parts = body.split(b"--" + (found.group(1) or found.group(2)).encode())[1:]
    for place, part in enumerate(part for part in parts if part.strip() not in (b"", b"--")):
        outer, _, inner = _split(part)
        identifier = _IDENTIFIER.search(outer)
        number = int(identifier.group(1)) if identifier else place
        status = _STATUS.match(inner.lstrip())
        if status is not None and number < count:
            results[number] = _failure(int(status.group(1)), inner, where)
    return results


def _failure(status: int, answer: bytes, where: str) -> RemoteError | None:
    if status < 300:
        return None
    head, _, body = _split(answer.lstrip())
    retry_after = _RETRY_AFTER.search(head)
    headers: Mapping[str, str] = {"Retry-After": retry_after.group(1).decode()} if retry_after else {}
    return errors.of_body(status, body, where, headers)


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    match = _EMPTY_LINE.search(text)
    if match is None:
        return text, b"", b""
    return text[: match.start()], match.group(), text[match.end() :]
