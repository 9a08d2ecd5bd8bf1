"""Objects: read, list, change, delete, copy, compose and move."""

from __future__ import annotations

import re
from typing import Any

from everstep_sandbox.storage import errors, listing
from everstep_sandbox.storage.exchange import FileRange, Request, Response
from everstep_sandbox.storage.preconditions import Preconditions
from everstep_sandbox.storage.records import StoredObject
from everstep_sandbox.storage.vault import SETTABLE, Vault

_LARGEST_COMPOSITION = 32


class Objects:
    """Handlers of ``/b/<bucket>/o`` and ``/b/<bucket>/o/<object>``."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def list_page(self, request: Request, bucket: str) -> Response:
        self._vault.bucket(bucket)
        if request.flag("softDeleted"):
            return Response(document={"kind": "storage#objects"})
        limit = request.number("maxResults")
        page = listing.page(
            self._vault.index,
            listing.Query(
                bucket=bucket,
                prefix=request.query.get("prefix", ""),
                delimiter=request.query.get("delimiter", ""),
                start=request.query.get("startOffset", ""),
                end=request.query.get("endOffset", ""),
                token=request.query.get("pageToken", ""),
                limit=min(limit, listing.LARGEST_PAGE) if limit else listing.LARGEST_PAGE,
                include_trailing_delimiter=request.flag("includeTrailingDelimiter"),
                include_folders=request.flag("includeFoldersAsPrefixes"),
                glob=request.query.get("matchGlob", ""),
            ),
        )
        document: dict[str, Any] = {"kind": "storage#objects"}
        if page.next_token:
            document["nextPageToken"] = page.next_token
        if page.prefixes:
            document["prefixes"] = page.prefixes
        if page.items:
            document["items"] = [stored.resource(request.base_url) for stored in page.items]
        return Response(document=document)

    def get(self, request: Request, bucket: str, name: str) -> Response:
        stored = self._read(request, bucket, name)
        if request.query.get("alt") == "media":
            return self._media(request, stored)
        return Response(document=stored.resource(request.base_url), headers={"ETag": stored.etag})

    def download(self, request: Request, bucket: str, name: str) -> Response:
        """The bytes, whatever `alt` says: the path of media links."""
        return self._media(request, self._read(request, bucket, name))

    def update(self, request: Request, bucket: str, name: str) -> Response:
        stored = self._changed(request, bucket, name)
        described = request.document()
        settings = dict(stored.settings) if request.method == "PATCH" else {}
        for key in SETTABLE:
            if key not in described:
                continue
            value = described[key]
            if key == "metadata" and isinstance(value, dict):
                merged = {**settings.get(key, {}), **value}
                value = {word: text for word, text in merged.items() if text is not None}
            if value is None:
                settings.pop(key, None)
            else:
                settings[key] = value
        return Response(document=self._vault.update(stored, settings).resource(request.base_url))

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        stored = self._changed(request, bucket, name)
        if stored.settings.get("temporaryHold") or stored.settings.get("eventBasedHold"):
            raise errors.StorageError(
                403, "forbidden", f"Object '{bucket}/{name}' is under active hold and can't be deleted."
            )
        self._vault.delete(stored)
        return Response(status=204)

    def copy(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        copied = self._copy(request, bucket, name, to_bucket, to_name)
        return Response(document=copied.resource(request.base_url))

    def rewrite(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        copied = self._copy(request, bucket, name, to_bucket, to_name)
        document = {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": str(copied.size),
            "objectSize": str(copied.size),
            "done": True,
            "resource": copied.resource(request.base_url),
        }
        return Response(document=document)

    def compose(self, request: Request, bucket: str, name: str) -> Response:
        described = request.document()
        wanted = described.get("sourceObjects") or []
        if not 1 <= len(wanted) <= _LARGEST_COMPOSITION:
            raise errors.invalid(
                f"The number of source components provided ({len(wanted)}) must be from 1 to {_LARGEST_COMPOSITION}.",
                "sourceObjects",
            )
        sources = []
        for one in wanted:
            generation = int(one["generation"]) if one.get("generation") else None
            source = self._vault.object(bucket, one["name"], generation)
            expected = (one.get("objectPreconditions") or {}).get("ifGenerationMatch")
            if expected is not None and int(expected) != source.generation:
                raise errors.precondition_failed()
            sources.append(source)
        composed = self._vault.compose(
            bucket, name, sources, described.get("destination") or {}, Preconditions.of(request)
        )
        if request.flag("deleteSourceObjects"):
            for source in sources:
                self._vault.delete(source)
        return Response(document=composed.resource(request.base_url))

    def move(self, request: Request, bucket: str, name: str, to_name: str) -> Response:
        source = self._vault.object(bucket, name)
        Preconditions.of(request, source=True).check(source)
        if name == to_name:
            raise errors.invalid("The source and the destination of a move must be different objects.")
        moved = self._vault.move(source, to_name, Preconditions.of(request))
        return Response(document=moved.resource(request.base_url))

    def _copy(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> StoredObject:
        source = self._vault.object(bucket, name, request.number("sourceGeneration"))
        Preconditions.of(request, source=True).check(source)
        return self._vault.copy(source, to_bucket, to_name, request.document(), Preconditions.of(request))

    def _read(self, request: Request, bucket: str, name: str) -> StoredObject:
        stored = self._vault.object(bucket, name, request.number("generation"))
        Preconditions.of(request).check(stored, reading=True)
        return stored

    def _changed(self, request: Request, bucket: str, name: str) -> StoredObject:
        stored = self._vault.object(bucket, name, request.number("generation"))
        Preconditions.of(request).check(stored)
        return stored

    def _media(self, request: Request, stored: StoredObject) -> Response:
        hashes = f"crc32c={stored.crc32c}" + (f",md5={stored.md5}" if stored.md5 else "")
        headers = {
            "Content-Type": stored.settings.get("contentType", "application/octet-stream"),
            "Content-Disposition": stored.settings.get("contentDisposition", "attachment"),
            "ETag": stored.etag,
            "Accept-Ranges": "bytes",
            "X-Goog-Generation": str(stored.generation),
            "X-Goog-Metageneration": str(stored.metageneration),
            "X-Goog-Hash": hashes,
            "X-Goog-Storage-Class": "STANDARD",
            "X-Goog-Stored-Content-Length": str(stored.size),
            "X-Goog-Stored-Content-Encoding": stored.settings.get("contentEncoding", "identity"),
        }
        for key, header in (
            ("contentEncoding", "Content-Encoding"),
            ("cacheControl", "Cache-Control"),
            ("contentLanguage", "Content-Language"),
        ):
            if key in stored.settings:
                headers[header] = stored.settings[key]
        wanted = byte_range(request.headers.get("range", ""), stored.size)
        if wanted is None:
            return Response(headers=headers, file=FileRange(self._vault.content(stored), 0, stored.size))
        start, end = wanted
        if start >= stored.size:
            raise errors.StorageError(
                416,
                "requestedRangeNotSatisfiable",
                "Request range not satisfiable",
                headers={"Content-Range": f"bytes */{stored.size}"},
            )
        headers["Content-Range"] = f"bytes {start}-{end}/{stored.size}"
        return Response(206, headers=headers, file=FileRange(self._vault.content(stored), start, end - start + 1))


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a Range header; None when it asks for all, or for what no server has to grant."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header.strip())
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else (size, size)
    return int(first), min(int(last), size - 1) if last else size - 1
