"""The batch endpoint: several requests in one multipart/mixed body, each answered in its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.exchange import Request, Response

LARGEST_BATCH = 100
"""Calls in one batch, by Google's documentation."""

_BOUNDARY = "batch_everstep_sandbox"
_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")


def answer(request: Request, handle: Callable[[Request], Response]) -> Response:
    """The answers of all parts. Raises StorageError 400 for a body that is no batch or is too large."""
    match = re.search(r'boundary=(?:"([^"]+)"|([^;]+))', request.headers.get("content-type", ""))
    if match is None:
        raise errors.invalid("A batch needs a boundary in its Content-Type.")
    boundary = b"--" + (match.group(1) or match.group(2)).strip().encode()
    parts = request.body.split(boundary)[1:]
    parts = [part for part in parts if part.strip() not in (b"", b"--")]
    if not 1 <= len(parts) <= LARGEST_BATCH:
        raise errors.invalid(f"A batch holds 1 to {LARGEST_BATCH} calls; this one has {len(parts)}.")
    answers = [_answered(part, request, handle) for part in parts]
    body = b"".join(f"--{_BOUNDARY}\r\n".encode() + one + b"\r\n" for one in answers)
    return Response(
        body=body + f"--{_BOUNDARY}--\r\n".encode(),
        headers={"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"},
    )


def _answered(part: bytes, whole: Request, handle: Callable[[Request], Response]) -> bytes:
    outer, _, call = _split(part.lstrip(b"\r\n"))
    head, _, body = _split(call.lstrip(b"\r\n"))
    request_line, *header_lines = head.decode().splitlines()
    method, target, *_ = request_line.split(" ")
    headers = {}
    for line in header_lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    length = headers.get("content-length")
    body = body[: int(length)] if length and length.isdigit() else body.rstrip(b"\r\n")
    response = handle(Request(method, parts.path, query, headers, body, whole.base_url, whole.caller))
    payload, answer_headers = response.encoded()
    answer_headers["Content-Length"] = str(len(payload))
    reason = HTTPStatus(response.status).phrase
    lines = [f"HTTP/1.1 {response.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in answer_headers.items()]
    identifier = re.search(rb"(?im)^content-id:[ \t]*<?([^>\r\n]+)>?", outer)
    outer_lines = ["Content-Type: application/http"]
    if identifier is not None:
        outer_lines.append(f"Content-ID: <response-{identifier.group(1).decode()}>")
    return ("\r\n".join(outer_lines) + "\r\n\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode() + payload


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    match = _EMPTY_LINE.search(text)
    if match is None:
        return text, b"", b""
    return text[: match.start()], match.group(), text[match.end() :]
