"""The few bucket requests that a training process makes itself: small records and shallow listings.

The Cloud Storage client is imported on first use, from a thread where that matters: it costs a second of processor
time and the training code may never need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from everstep.checkpoints.catalogue import ListedObject

REQUEST_SECONDS = 20.0
"""Time limit of one request; the client's own retries come on top where a caller allows them."""


@dataclass(frozen=True)
class Stored:
    """An object's content and the generation it was read at."""

    content: bytes
    generation: int


@dataclass(frozen=True)
class Listing:
    """One level of a prefix: objects and sub-directories by their last path parts."""

    objects: tuple[ListedObject, ...]
    folders: tuple[str, ...]


class GenerationConflict(Exception):
    """The object is no longer at the generation that the write expected."""


class Bucket:
    """One bucket, with the process's own credentials."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: Any = None

    def read(self, path: str) -> Stored | None:
        """The object's content; None if there is none."""
        from google.api_core.exceptions import NotFound

        blob = self._blob(path)
        try:
            content = blob.download_as_bytes(timeout=REQUEST_SECONDS)
        except NotFound:
            return None
        return Stored(content, int(blob.generation))

    def write(self, path: str, content: bytes, *, if_generation: int | None = None) -> int:
        """Write a JSON object and return its generation.

        :param if_generation: only if the object is still at this generation (0: if there is none)
        :raises GenerationConflict: if it is not
        """
        from google.api_core.exceptions import PreconditionFailed

        blob = self._blob(path)
        try:
            blob.upload_from_string(
                content,
                content_type="application/json",
                if_generation_match=if_generation,
                timeout=REQUEST_SECONDS,
            )
        except PreconditionFailed as error:
            raise GenerationConflict(f"gs://{self.name}/{path} has changed since it was read") from error
        return int(blob.generation)

    def delete(self, path: str) -> None:
        """Delete an object; one that is gone already is fine."""
        from google.api_core.exceptions import NotFound

        with contextlib.suppress(NotFound):
            self._blob(path).delete(timeout=REQUEST_SECONDS)

    def names_below(self, prefix: str) -> list[str]:
        """Paths of all objects below a prefix, however deep."""
        return [blob.name for blob in self._bucket().list_blobs(prefix=prefix, timeout=REQUEST_SECONDS)]

    def exists(self, path: str) -> bool:
        return bool(self._blob(path).exists(timeout=REQUEST_SECONDS))

    def list_level(self, prefix: str) -> Listing:
        """Objects and folders directly below a prefix, folders without objects included where the bucket has them."""
        objects: list[ListedObject] = []
        folders: set[str] = set()
        for page in self._pages(prefix):
            objects.extend(_listed(blob, prefix) for blob in page if blob.name != prefix)
            folders.update(page.prefixes)
        names = sorted(folder.removeprefix(prefix).rstrip("/") for folder in folders)
        return Listing(tuple(objects), tuple(names))

    def _pages(self, prefix: str) -> Iterator[Any]:
        iterator = self._bucket().list_blobs(
            prefix=prefix, delimiter="/", include_folders_as_prefixes=True, timeout=REQUEST_SECONDS
        )
        pages: Iterator[Any] = iterator.pages
        for page in pages:
            page.prefixes = tuple(iterator.prefixes)
            yield page

    def _blob(self, path: str) -> Any:
        return self._bucket().blob(path)

    def _bucket(self) -> Any:
        if self._client is None:
            from google.cloud import storage

            self._client = storage.Client()
        return self._client.bucket(self.name)


def _listed(blob: Any, prefix: str) -> ListedObject:
    return ListedObject(
        name=blob.name.removeprefix(prefix),
        size=int(blob.size or 0),
        md5=blob.md5_hash,
        crc32c=blob.crc32c,
        created=blob.time_created,
    )
