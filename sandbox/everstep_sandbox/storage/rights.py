"""Which permissions a request takes, on which resources."""

from __future__ import annotations

import json
from collections.abc import Iterator

from everstep_sandbox.storage import uploads
from everstep_sandbox.storage.access import Access, folder_subject, listing_subject, object_subject
from everstep_sandbox.storage.conditions import Subject
from everstep_sandbox.storage.exchange import Request
from everstep_sandbox.storage.vault import Vault

_Need = tuple[str, str, Subject | None]

_ON_BUCKETS = {
    "GET bucket": "storage.buckets.get",
    "PATCH bucket": "storage.buckets.update",
    "PUT bucket": "storage.buckets.update",
    "DELETE bucket": "storage.buckets.delete",
    "GET iam": "storage.buckets.getIamPolicy",
    "PUT iam": "storage.buckets.setIamPolicy",
    "GET layout": "storage.objects.list",
}
_ON_OBJECTS = {
    "GET object": "storage.objects.get",
    "PATCH object": "storage.objects.update",
    "PUT object": "storage.objects.update",
    "DELETE object": "storage.objects.delete",
}
_ON_FOLDERS = {
    "GET folder": "storage.folders.get",
    "DELETE folder": "storage.folders.delete",
    "POST rename": "storage.folders.rename",
    "POST deleteRecursive": "storage.folders.delete",
}


def check(access: Access, vault: Vault, request: Request, kind: str, parts: tuple[str, ...]) -> None:
    """Raises StorageError 403 for the first permission that the caller lacks."""
    for permission, bucket, subject in _needs(vault, request, kind, parts):
        if not bucket or vault.index.bucket(bucket) is not None:
            access.check(request.caller, permission, bucket, subject)


def _needs(vault: Vault, request: Request, kind: str, parts: tuple[str, ...]) -> Iterator[_Need]:
    call = f"{request.method} {kind}"
    bucket = parts[0] if parts else ""
    if kind == "buckets":
        yield "storage.buckets.list" if request.method == "GET" else "storage.buckets.create", "", None
    elif call in _ON_BUCKETS:
        yield _ON_BUCKETS[call], bucket, None
    elif call == "GET objects":
        yield "storage.objects.list", bucket, listing_subject(bucket, request.query.get("prefix", ""))
    elif kind == "object" and "/upload/" in request.path:
        yield from _writes(vault, bucket, _uploaded_name(vault, request))
    elif call in _ON_OBJECTS:
        yield _ON_OBJECTS[call], bucket, object_subject(bucket, parts[1])
    elif kind == "copy":
        yield "storage.objects.get", bucket, object_subject(bucket, parts[1])
        yield from _writes(vault, parts[2], parts[3])
    elif kind == "move":
        yield "storage.objects.move", bucket, object_subject(bucket, parts[1])
        yield from _writes(vault, bucket, parts[2])
    elif kind == "compose":
        for source in request.document().get("sourceObjects") or ():
            yield "storage.objects.get", bucket, object_subject(bucket, str(source.get("name", "")))
        yield from _writes(vault, bucket, parts[1])
    elif call == "GET folders":
        yield "storage.folders.list", bucket, listing_subject(bucket, request.query.get("prefix", ""))
    elif call == "POST folders":
        yield "storage.folders.create", bucket, folder_subject(bucket, str(request.document().get("name", "")))
    elif call in _ON_FOLDERS:
        yield _ON_FOLDERS[call], bucket, folder_subject(bucket, parts[1])
        if kind == "rename":
            yield "storage.folders.create", bucket, folder_subject(bucket, parts[2])
        if kind == "deleteRecursive":
            yield "storage.objects.delete", bucket, object_subject(bucket, parts[1])


def _writes(vault: Vault, bucket: str, name: str) -> Iterator[_Need]:
    """An object that replaces one is also a deletion."""
    yield "storage.objects.create", bucket, object_subject(bucket, name)
    if vault.index.object(bucket, name) is not None:
        yield "storage.objects.delete", bucket, object_subject(bucket, name)


def _uploaded_name(vault: Vault, request: Request) -> str:
    if "upload_id" in request.query:
        upload = vault.index.upload(request.query["upload_id"])
        return upload[1] if upload is not None else ""
    if request.query.get("name"):
        return request.query["name"]
    content_type = request.headers.get("content-type", "")
    try:
        if request.query.get("uploadType") == "multipart":
            return str(uploads.parse_related(content_type, request.body)[0].get("name", ""))
        return str(json.loads(request.body or b"{}").get("name", ""))
    except (ValueError, AttributeError):
        return ""
