"""The stored bytes and their index: the one place where objects come to be, change name and go."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import os
import uuid
from pathlib import Path
from typing import Any

import google_crc32c

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.index import Index
from everstep_sandbox.storage.preconditions import Preconditions
from everstep_sandbox.storage.records import Bucket, Folder, StoredObject, now

SETTABLE = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "eventBasedHold",
    "metadata",
    "storageClass",
    "temporaryHold",
)
"""What a client may say of an object beside its bytes."""

_LONGEST_NAME_BYTES = 1024


class Vault:
    """Buckets on disk: ``<directory>/index.sqlite`` and ``<directory>/<bucket>/objects/<content file>``.

    A content file is written aside and renamed before the index knows it, and goes after the index has forgotten
    it; files that a crash left between the two are cleared at the next start.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uploads = directory / "uploads"
        self.uploads.mkdir(parents=True, exist_ok=True)
        self.index = Index(directory / "index.sqlite")
        for bucket in self.index.buckets(""):
            self._clear_leftovers(bucket.name)

    def close(self) -> None:
        self.index.close()

    def bucket(self, name: str) -> Bucket:
        """Raises StorageError 404 when there is no such bucket."""
        bucket = self.index.bucket(name)
        if bucket is None:
            raise errors.no_bucket()
        return bucket

    def object(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """The live object, of this generation if one is given. Raises StorageError 404."""
        self.bucket(bucket)
        stored = self.index.object(bucket, name)
        if stored is None or generation not in (None, stored.generation):
            raise errors.no_object(bucket, name)
        return stored

    def content(self, stored: StoredObject) -> Path:
        return self._contents(stored.bucket) / stored.content

    def add_bucket(self, bucket: Bucket) -> None:
        self._contents(bucket.name).mkdir(parents=True, exist_ok=True)
        with self.index.transaction():
            self.index.put_bucket(bucket)

    def remove_bucket(self, name: str) -> None:
        with self.index.transaction():
            self.index.delete_bucket(name)
        self._clear_leftovers(name)
        with contextlib.suppress(OSError):
            self._contents(name).rmdir()
            self._contents(name).parent.rmdir()

    def put(
        self, bucket: str, name: str, data: bytes, described: dict[str, Any], preconditions: Preconditions
    ) -> StoredObject:
        """Stores an object whole or not at all. `described`: the client's resource. Raises StorageError."""
        self._check_name(name)
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        crc32c = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
        for key, actual in (("md5Hash", md5), ("crc32c", crc32c)):
            if described.get(key, actual) != actual:
                raise errors.invalid(
                    f"Provided {key} '{described[key]}' doesn't match calculated {key} '{actual}'.", key
                )
        content = self._write(bucket, data)
        return self._commit(bucket, name, content, len(data), md5, crc32c, described, preconditions)

    def compose(
        self,
        bucket: str,
        name: str,
        sources: list[StoredObject],
        described: dict[str, Any],
        preconditions: Preconditions,
    ) -> StoredObject:
        """One object of the sources' bytes, in their order. A composed object has no md5, as in the service."""
        self._check_name(name)
        data = b"".join(self.content(source).read_bytes() for source in sources)
        crc32c = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
        components = sum(source.components or 1 for source in sources)
        content = self._write(bucket, data)
        return self._commit(
            bucket, name, content, len(data), None, crc32c, described, preconditions, components=components
        )

    def copy(
        self,
        source: StoredObject,
        bucket: str,
        name: str,
        described: dict[str, Any] | None,
        preconditions: Preconditions,
    ) -> StoredObject:
        """A copy of an object; it keeps the source's settings unless the client describes the copy."""
        self._check_name(name)
        self.bucket(bucket)
        content = uuid.uuid4().hex
        os.link(self.content(source), self._contents(bucket) / content)
        return self._commit(
            bucket,
            name,
            content,
            source.size,
            source.md5,
            source.crc32c,
            described if described else source.settings,
            preconditions,
            components=source.components,
        )

    def move(self, source: StoredObject, name: str, preconditions: Preconditions) -> StoredObject:
        """Renames an object inside its bucket, in one transaction."""
        self._check_name(name)
        replaced = self.index.object(source.bucket, name)
        preconditions.check(replaced)
        moved = dataclasses.replace(
            source, name=name, generation=self.index.next_generation(), metageneration=1, updated=now()
        )
        with self.index.transaction():
            self._check_folders(source.bucket, source.name)
            self._make_folders(source.bucket, name)
            self.index.delete_object(source.bucket, source.name)
            self.index.put_object(moved)
        if replaced is not None and replaced.content != moved.content:
            self._remove(source.bucket, [replaced.content])
        return moved

    def update(self, stored: StoredObject, settings: dict[str, Any]) -> StoredObject:
        """The same bytes with other settings, metageneration one higher."""
        changed = dataclasses.replace(
            stored, settings=settings, metageneration=stored.metageneration + 1, updated=now()
        )
        with self.index.transaction():
            self.index.put_object(changed)
        return changed

    def delete(self, stored: StoredObject) -> None:
        with self.index.transaction():
            self._check_folders(stored.bucket, stored.name)
            self.index.delete_object(stored.bucket, stored.name)
        self._remove(stored.bucket, [stored.content])

    def delete_tree(self, bucket: str, folder: str) -> None:
        """Deletes a folder and all under it, in one transaction."""
        with self.index.transaction():
            contents = self.index.delete_under(bucket, folder)
        self._remove(bucket, contents)

    def _commit(
        self,
        bucket: str,
        name: str,
        content: str,
        size: int,
        md5: str | None,
        crc32c: str,
        described: dict[str, Any],
        preconditions: Preconditions,
        *,
        components: int | None = None,
    ) -> StoredObject:
        try:
            replaced = self.index.object(bucket, name)
            preconditions.check(replaced)
            time = now()
            stored = StoredObject(
                bucket=bucket,
                name=name,
                generation=self.index.next_generation(),
                metageneration=1,
                size=size,
                md5=md5,
                crc32c=crc32c,
                created=time,
                updated=time,
                content=content,
                components=components,
                settings={key: described[key] for key in SETTABLE if described.get(key) is not None},
            )
            with self.index.transaction():
                self._make_folders(bucket, name)
                self.index.put_object(stored)
        except BaseException:
            self._remove(bucket, [content])
            raise
        if replaced is not None:
            self._remove(bucket, [replaced.content])
        return stored

    def _make_folders(self, bucket: str, name: str) -> None:
        """In a hierarchical bucket an object's folders come to be with it."""
        if not self.bucket(bucket).hierarchical:
            return
        self._check_folders(bucket, name)
        for folder in _folders_of(name):
            if self.index.folder(bucket, folder) is None:
                time = now()
                self.index.put_folder(Folder(bucket, folder, time, time, 1))

    def _check_folders(self, bucket: str, name: str) -> None:
        """While a folder is being renamed, nothing under it may be written or deleted."""
        renaming = self.index.renaming_folder(bucket, _folders_of(name))
        if renaming is not None:
            raise errors.StorageError(
                409,
                "conflict",
                f"The folder {bucket}/{renaming.name} is being renamed by operation {renaming.pending_rename}; "
                "objects under it can't be changed until that is done.",
            )

    def _check_name(self, name: str) -> None:
        if not name or len(name.encode()) > _LONGEST_NAME_BYTES or "\n" in name or "\r" in name:
            raise errors.invalid(f"The object name '{name[:80]}' is not valid.", "name")

    def _contents(self, bucket: str) -> Path:
        return self.directory / bucket / "objects"

    def _write(self, bucket: str, data: bytes) -> str:
        self.bucket(bucket)
        content = uuid.uuid4().hex
        path = self._contents(bucket) / content
        aside = path.with_suffix(".tmp")
        aside.write_bytes(data)
        aside.rename(path)
        return content

    def _remove(self, bucket: str, contents: list[str]) -> None:
        for content in contents:
            (self._contents(bucket) / content).unlink(missing_ok=True)

    def _clear_leftovers(self, bucket: str) -> None:
        directory = self._contents(bucket)
        if directory.is_dir():
            used = self.index.contents(bucket)
            self._remove(bucket, [path.name for path in directory.iterdir() if path.name not in used])


def _folders_of(name: str) -> list[str]:
    """The folders that hold `name`: "a/b/c" -> ["a/", "a/b/"]; a name that is a folder includes itself."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) + "/" for count in range(len(parts))]
