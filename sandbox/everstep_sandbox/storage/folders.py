"""Folders of hierarchical buckets: create, read, delete, atomic rename and recursive delete.

A rename and a recursive delete are long-running operations, as in the service: the first answer says
``done: false``; the change is seen at once and whole when the operation is done. Whoever starts the operations'
clock (`run_later`) decides how long they take; operations that a crash interrupted are done at the next start.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.exchange import Request, Response
from everstep_sandbox.storage.index import after
from everstep_sandbox.storage.records import Folder, Operation, now
from everstep_sandbox.storage.vault import Vault

_LARGEST_PAGE = 1000


class Folders:
    """Handlers of ``/b/<bucket>/folders`` and ``/b/<bucket>/operations``."""

    def __init__(self, vault: Vault, run_later: Callable[[Callable[[], None]], None]) -> None:
        self._vault = vault
        self._run_later = run_later
        for operation in vault.index.operations(pending=True):
            self._finish(operation)

    def create(self, request: Request, bucket: str) -> Response:
        self._hierarchical(bucket)
        name = request.document().get("name")
        if not isinstance(name, str) or not name.strip("/"):
            raise errors.required("name")
        name = name.rstrip("/") + "/"
        if self._vault.index.folder(bucket, name) is not None:
            raise errors.conflict(f"The folder {bucket}/{name} already exists.")
        missing = [one for one in _parents(name) if self._vault.index.folder(bucket, one) is None]
        if missing and not request.flag("recursive"):
            raise errors.no_folder(bucket, missing[0])
        time = now()
        with self._vault.index.transaction():
            for one in (*missing, name):
                self._vault.index.put_folder(Folder(bucket, one, time, time, 1))
        return self._shown(request, bucket, name)

    def get(self, request: Request, bucket: str, name: str) -> Response:
        self._check(request, self._folder(bucket, name))
        return self._shown(request, bucket, name)

    def list_page(self, request: Request, bucket: str) -> Response:
        """Folders under a prefix; with the delimiter "/" only those directly in it."""
        self._hierarchical(bucket)
        prefix = request.query.get("prefix", "")
        limit = min(request.number("pageSize") or _LARGEST_PAGE, _LARGEST_PAGE)
        direct = request.query.get("delimiter") == "/"
        end = min(filter(None, (after(prefix), request.query.get("endOffset"))), default=None)
        cursor = max(prefix, request.query.get("startOffset", ""), request.query.get("pageToken", ""))
        found: list[Folder] = []
        while len(found) <= limit:
            rows = self._vault.index.folders(bucket, cursor, end, limit + 1)
            if not rows:
                break
            cursor = rows[-1].name + "\0"
            found += [row for row in rows if not direct or "/" not in row.name[len(prefix) : -1]]
        document: dict[str, Any] = {
            "kind": "storage#folders",
            "items": [folder.resource(request.base_url) for folder in found[:limit]],
        }
        if len(found) > limit:
            document["nextPageToken"] = found[limit].name
        return Response(document=document)

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        folder = self._folder(bucket, name)
        self._check(request, folder)
        end = after(folder.name)
        objects = self._vault.index.objects(bucket, folder.name, end, 1)
        if objects or len(self._vault.index.folders(bucket, folder.name, end, 2)) > 1:
            raise errors.conflict(f"The folder {bucket}/{folder.name} is not empty.")
        with self._vault.index.transaction():
            self._vault.index.delete_folder(bucket, folder.name)
        return Response(status=204)

    def rename(self, request: Request, bucket: str, name: str, to_name: str) -> Response:
        source = self._folder(bucket, name)
        destination = to_name.rstrip("/") + "/"
        if not _source_metageneration(request, source):
            raise errors.precondition_failed()
        if destination.startswith(source.name):
            raise errors.invalid(f"The folder {source.name} can't be renamed into itself: {destination}.")
        if self._vault.index.folder(bucket, destination) is not None:
            raise errors.conflict(f"The folder {bucket}/{destination} already exists.")
        if self._vault.index.objects(bucket, destination, after(destination), 1):
            raise errors.conflict(f"Objects exist under {bucket}/{destination}.")
        for parent in _parents(destination):
            if self._vault.index.folder(bucket, parent) is None:
                raise errors.no_folder(bucket, parent)
        if source.pending_rename is not None:
            raise errors.conflict(f"The folder {bucket}/{source.name} is being renamed already.")
        return self._begin(request, "renameFolder", source, destination)

    def delete_recursive(self, request: Request, bucket: str, name: str) -> Response:
        folder = self._folder(bucket, name)
        self._check(request, folder)
        return self._begin(request, "deleteFolderRecursive", folder, None)

    def operation(self, request: Request, bucket: str, identifier: str) -> Response:
        self._vault.bucket(bucket)
        operation = self._vault.index.operation(bucket, identifier)
        if operation is None:
            raise errors.StorageError(404, "notFound", f"The operation {identifier} does not exist.")
        return Response(document=operation.resource(request.base_url))

    def operations(self, request: Request, bucket: str) -> Response:
        self._vault.bucket(bucket)
        found = [one.resource(request.base_url) for one in self._vault.index.operations(bucket)]
        return Response(document={"kind": "storage#operations", "operations": found})

    def _begin(self, request: Request, kind: str, folder: Folder, destination: str | None) -> Response:
        operation = Operation(folder.bucket, uuid.uuid4().hex, kind, folder.name, destination, now(), done=False)
        with self._vault.index.transaction():
            self._vault.index.put_operation(operation)
            if destination is not None:
                renaming = dataclasses.replace(folder, pending_rename=operation.identifier)
                self._vault.index.put_folder(renaming)
        self._run_later(lambda: self._finish(operation))
        return Response(document=operation.resource(request.base_url))

    def _finish(self, operation: Operation) -> None:
        bucket = operation.bucket
        if self._vault.index.bucket(bucket) is None:
            return
        if operation.destination is None:
            self._vault.delete_tree(bucket, operation.source)
            with self._vault.index.transaction():
                self._vault.index.put_operation(dataclasses.replace(operation, done=True))
            return
        with self._vault.index.transaction():
            self._vault.index.rename_under(bucket, operation.source, operation.destination)
            renamed = self._vault.index.folder(bucket, operation.destination)
            response = None
            if renamed is not None:
                renamed = dataclasses.replace(
                    renamed,
                    pending_rename=None,
                    updated=now(),
                    metageneration=renamed.metageneration + 1,
                )
                self._vault.index.put_folder(renamed)
                response = renamed.resource("")
            done = dataclasses.replace(operation, done=True, response=response)
            self._vault.index.put_operation(done)

    def _hierarchical(self, bucket: str) -> None:
        if not self._vault.bucket(bucket).hierarchical:
            raise errors.conflict(
                f"Folders need a bucket with hierarchical namespace; {bucket} has none and it can't be turned on later."
            )

    def _folder(self, bucket: str, name: str) -> Folder:
        self._hierarchical(bucket)
        full = name.rstrip("/") + "/"
        folder = self._vault.index.folder(bucket, full)
        if folder is None:
            raise errors.no_folder(bucket, full)
        return folder

    def _check(self, request: Request, folder: Folder) -> None:
        if request.number("ifMetagenerationMatch") not in (None, folder.metageneration):
            raise errors.precondition_failed()
        if request.number("ifMetagenerationNotMatch") == folder.metageneration:
            raise errors.not_modified() if request.method == "GET" else errors.precondition_failed()

    def _shown(self, request: Request, bucket: str, name: str) -> Response:
        return Response(document=self._folder(bucket, name).resource(request.base_url))


def _source_metageneration(request: Request, source: Folder) -> bool:
    wanted = request.number("ifSourceMetagenerationMatch")
    unwanted = request.number("ifSourceMetagenerationNotMatch")
    return wanted in (None, source.metageneration) and unwanted != source.metageneration


def _parents(name: str) -> list[str]:
    """The folders above a folder: "a/b/c/" -> ["a/", "a/b/"]."""
    parts = name.rstrip("/").split("/")[:-1]
    return ["/".join(parts[: count + 1]) + "/" for count in range(len(parts))]
