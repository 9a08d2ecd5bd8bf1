"""Uploads: media, multipart/related and resumable ones, which survive a restart of the server."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.exchange import Request, Response
from everstep_sandbox.storage.preconditions import Preconditions
from everstep_sandbox.storage.vault import Vault

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Uploads:
    """Handlers of ``/upload/storage/v1/b/<bucket>/o``."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def insert(self, request: Request, bucket: str) -> Response:
        if "upload_id" in request.query:
            return self.resume(request, bucket)
        self._vault.bucket(bucket)
        kind = request.query.get("uploadType", "media")
        if kind == "resumable":
            return self._begin(request, bucket)
        if kind == "multipart":
            described, data = parse_related(request.headers.get("content-type", ""), request.body)
        elif kind == "media":
            described, data = {}, request.body
            if "content-type" in request.headers:
                described["contentType"] = request.headers["content-type"]
            if "contentEncoding" in request.query:
                described["contentEncoding"] = request.query["contentEncoding"]
        else:
            raise errors.invalid(f"Invalid upload type '{kind}'.", "uploadType")
        stored = self._vault.put(
            bucket, _name(request, described), data, _hashed(request, described), Preconditions.of(request)
        )
        return Response(document=stored.resource(request.base_url))

    def resume(self, request: Request, bucket: str) -> Response:
        """The next bytes of a resumable upload, or the question how many arrived."""
        identifier = request.query["upload_id"]
        upload = self._vault.index.upload(identifier)
        if upload is None or upload[0] != bucket:
            raise errors.StorageError(
                410, "uploadBroken", f"Upload {identifier} is unknown: finished, cancelled or never begun."
            )
        _, name, begun, finished = upload
        if finished is not None:
            return Response(document=finished)
        path = self._vault.uploads / identifier
        persisted = path.stat().st_size if path.exists() else 0
        first, total = _content_range(request, persisted)
        if first is not None and first <= persisted:
            fresh = request.body[persisted - first :]
            with path.open("ab") as file:
                file.write(fresh)
            persisted += len(fresh)
        if total is None or persisted < total:
            return Response(308, headers={"Range": f"bytes=0-{persisted - 1}"} if persisted else {})
        if persisted > total:
            raise errors.invalid(f"The upload holds {persisted} bytes, more than the {total} announced.")
        data = path.read_bytes() if path.exists() else b""
        described = _hashed(request, begun["described"])
        stored = self._vault.put(bucket, name, data, described, Preconditions(**begun["preconditions"]))
        resource = stored.resource(request.base_url)
        with self._vault.index.transaction():
            self._vault.index.put_upload(identifier, bucket, name, begun, resource)
        path.unlink(missing_ok=True)
        return Response(document=resource)

    def cancel(self, request: Request, bucket: str) -> Response:
        identifier = request.query.get("upload_id", "")
        if not re.fullmatch(r"[0-9a-f]{32}", identifier):
            raise errors.required("upload_id")
        with self._vault.index.transaction():
            self._vault.index.delete_upload(identifier)
        (self._vault.uploads / identifier).unlink(missing_ok=True)
        return Response(499)

    def _begin(self, request: Request, bucket: str) -> Response:
        described = request.document()
        if "x-upload-content-type" in request.headers:
            described.setdefault("contentType", request.headers["x-upload-content-type"])
        name = _name(request, described)
        preconditions = Preconditions.of(request)
        preconditions.check(self._vault.index.object(bucket, name))
        identifier = uuid.uuid4().hex
        begun = {"described": described, "preconditions": vars(preconditions)}
        with self._vault.index.transaction():
            self._vault.index.put_upload(identifier, bucket, name, begun)
        address = f"{request.base_url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={identifier}"
        return Response(headers={"Location": address, "X-GUploader-UploadID": identifier})


def parse_related(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Metadata and bytes of a multipart/related body. Raises StorageError 400."""
    match = re.search(r'boundary=(?:"([^"]+)"|\'([^\']+)\'|([^;]+))', content_type)
    if match is None:
        raise errors.invalid("A multipart upload needs a boundary in its Content-Type.")
    boundary = b"--" + next(filter(None, match.groups())).strip().encode()
    parts = body.split(boundary, 2)
    end = body.rfind(boundary + b"--")
    if len(parts) < 3 or end < 0:
        raise errors.invalid("A multipart upload has two parts: metadata and content.")
    _, metadata = _headers_and_rest(parts[1])
    try:
        described = json.loads(metadata)
    except ValueError:
        raise errors.invalid("The first part of a multipart upload is the object's JSON resource.") from None
    content_start = len(parts[0]) + len(boundary) + len(parts[1]) + len(boundary)
    headers, content = _headers_and_rest(body[content_start:end])
    content = content.removesuffix(b"\n").removesuffix(b"\r") if b"\r\n" in headers else content.removesuffix(b"\n")
    sent = re.search(rb"(?im)^content-type:[ \t]*([^\r\n]+)", headers)
    if sent is not None:
        described.setdefault("contentType", sent.group(1).decode())
    return described, content


def _headers_and_rest(part: bytes) -> tuple[bytes, bytes]:
    match = re.search(rb"\r?\n\r?\n", part)
    if match is None:
        raise errors.invalid("A part of a multipart upload has no empty line after its headers.")
    return part[: match.end()], part[match.end() :]


def _name(request: Request, described: dict[str, Any]) -> str:
    name = request.query.get("name") or described.get("name")
    if not isinstance(name, str):
        raise errors.required("name")
    return name


def _hashed(request: Request, described: dict[str, Any]) -> dict[str, Any]:
    """The checksums of an X-Goog-Hash header count as the resource's own."""
    hashed = dict(described)
    for word in filter(None, request.headers.get("x-goog-hash", "").split(",")):
        kind, _, value = word.strip().partition("=")
        hashed[{"md5": "md5Hash"}.get(kind, kind)] = value
    return hashed


def _content_range(request: Request, persisted: int) -> tuple[int | None, int | None]:
    """The offset of the body's first byte (None: no bytes, a question) and the size of the object, if known."""
    header = request.headers.get("content-range", "")
    if not header:
        return persisted, persisted + len(request.body)
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if match is None:
        raise errors.invalid(f"Invalid Content-Range '{header}'.", "Content-Range")
    first, last, total = match.groups()
    size = None if total == "*" else int(total)
    if first is None:
        return None if not request.body else persisted, size
    if int(last) - int(first) + 1 != len(request.body):
        raise errors.invalid(
            f"Content-Range '{header}' does not fit the {len(request.body)} bytes sent.", "Content-Range"
        )
    return int(first), size
