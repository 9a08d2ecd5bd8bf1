"""One bucket, for operators and the command line (google-cloud-storage)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from everstep.checkpoints.catalogue import ListedObject
from everstep.clients import errors
from everstep.clients.requests import Answer, Listing, ListRequest, ReadRequest, Request, Result, Steps, StoredObject

Value = TypeVar("Value")
REQUEST_SECONDS = 30.0


class BucketClient:
    """A bucket. Every method raises the errors of `everstep.clients.errors`.

    The library itself tries reads, and writes with a generation precondition, again after passing failures.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self.name = bucket
        self._client = client
        self._bucket = client.bucket(bucket)

    def list_level(self, prefix: str) -> Listing:
        """List one level below a prefix that ends with `/` (or is empty)."""
        return self._asked(f"list gs://{self.name}/{prefix}", lambda: self._list(prefix))

    def read(self, name: str) -> StoredObject | None:
        """Return an object, or None when there is none."""
        blob = self._bucket.blob(name)
        try:
            body = self._asked(f"read gs://{self.name}/{name}", lambda: blob.download_as_bytes(timeout=REQUEST_SECONDS))
        except errors.NotFound as failure:
            if "bucket" in failure.message.lower() and "does not exist" in failure.message.lower():
                raise
            return None
        return StoredObject(name, body, int(blob.generation))

    def write(self, name: str, document: Any, *, generation: int | None) -> int:
        """Write an object as JSON and return its new generation.

        :param generation: the one that is to be replaced; 0 when there must be none; None for any. Raises Conflict
            when another one is there
        """
        blob = self._bucket.blob(name)
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"

        def upload() -> None:
            blob.upload_from_string(
                text, content_type="application/json", if_generation_match=generation, timeout=REQUEST_SECONDS
            )

        self._asked(f"write gs://{self.name}/{name}", upload)
        return int(blob.generation)

    def delete(self, name: str, *, generation: int) -> bool:
        """Delete an object in one generation. Return False when there is none; raises Conflict on another one."""
        blob = self._bucket.blob(name)
        try:
            self._asked(
                f"delete gs://{self.name}/{name}",
                lambda: blob.delete(if_generation_match=generation, timeout=REQUEST_SECONDS),
            )
        except errors.NotFound:
            return False
        return True

    def is_hierarchical(self) -> bool | None:
        """Say whether the bucket has a hierarchical namespace. Raises NotFound when there is no such bucket."""
        bucket = self._asked(
            f"look at gs://{self.name}",
            lambda: self._client.get_bucket(self.name, timeout=REQUEST_SECONDS),
        )
        return bool(bucket.hierarchical_namespace_enabled)

    def run(self, steps: Steps[Result]) -> Result:
        """Carry out a reading, and return its result."""
        answers: list[Answer] | None = None
        try:
            while True:
                batch = next(steps) if answers is None else steps.send(answers)
                answers = [self._answer(request) for request in batch]
        except StopIteration as done:
            result: Result = done.value
            return result

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, ListRequest):
            return self.list_level(request.prefix)
        assert isinstance(request, ReadRequest)
        return self.read(request.name)

    def _list(self, prefix: str) -> Listing:
        # Folders of a hierarchical bucket that hold no object yet show up as prefixes only when asked for.
        blobs = self._client.list_blobs(
            self._bucket,
            prefix=prefix,
            delimiter="/",
            include_folders_as_prefixes=True,
            timeout=REQUEST_SECONDS,
            fields="items(name,size,md5Hash,crc32c,timeCreated),prefixes,nextPageToken",
        )
        objects = [
            ListedObject(blob.name.removeprefix(prefix), blob.size or 0, blob.md5_hash, blob.crc32c, blob.time_created)
            for blob in blobs
        ]
        folders = (folder.removeprefix(prefix).rstrip("/") for folder in blobs.prefixes)
        return Listing(tuple(each for each in objects if each.name), tuple(sorted(each for each in folders if each)))

    @staticmethod
    def _asked(where: str, ask: Callable[[], Value]) -> Value:
        try:
            return ask()
        except Exception as failure:
            error = errors.translate(failure, where)
            if error is None:
                raise
            raise error from failure
