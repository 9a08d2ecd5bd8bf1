"""One bucket, for operators and the command line (google-cloud-storage)."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from everstep.clients import errors
from everstep.clients.json_api import JsonApi, place
from everstep.clients.requests import (
    LISTED_FIELDS,
    Answer,
    Listing,
    ListRequest,
    ReadRequest,
    Request,
    Result,
    SizeRequest,
    Sizes,
    Steps,
    StoredObject,
    listed_object,
)
from everstep.clients.retrying import PATIENCE_SECONDS, Backoff

Value = TypeVar("Value")
REQUEST_SECONDS = 30.0


class BucketClient:
    """A bucket. Every method raises the errors of `everstep.clients.errors`.

    The library itself tries reads, and writes with a generation precondition, again after passing failures.

    :param open_client: opens a `google.cloud.storage.Client`, at the first request
    :param patience: seconds for which a reading is tried
    """

    def __init__(self, open_client: Callable[[], Any], bucket: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self.name = bucket
        self._open_client = open_client
        self._patience = patience
        self._connections = 10

    @cached_property
    def _client(self) -> Any:
        return self._open_client()

    @cached_property
    def _api(self) -> JsonApi:
        return JsonApi(lambda: self._client, backoff=Backoff(give_up_after=self._patience))

    @cached_property
    def _bucket(self) -> Any:
        return self._client.bucket(self.name)

    @cached_property
    def _reading(self) -> dict[str, Any]:
        from google.cloud.storage.retry import DEFAULT_RETRY

        return {"timeout": REQUEST_SECONDS, "retry": DEFAULT_RETRY.with_timeout(self._patience)}

    def list_level(self, prefix: str) -> Listing:
        """List one level below a prefix that ends with `/` (or is empty)."""
        return self._asked(f"list gs://{self.name}/{prefix}", lambda: self._list(prefix))

    def size(self, prefix: str) -> Sizes:
        """Count the objects below a prefix at all levels, and their bytes."""

        def count() -> Sizes:
            objects = total = 0
            fields = "items(size),nextPageToken"
            for page in self._client.list_blobs(self._bucket, prefix=prefix, **self._reading, fields=fields).pages:
                items = page.raw_page.get("items", ())
                objects += len(items)
                total += sum(int(item["size"]) for item in items)
            return Sizes(objects, total)

        return self._asked(f"list gs://{self.name}/{prefix}", count)

    def read(self, name: str) -> StoredObject | None:
        """Return an object, or None when there is none."""

        def download() -> StoredObject:
            blob = self._bucket.blob(name)
            body = blob.download_as_bytes(**self._reading)
            return StoredObject(name, body, int(blob.generation))

        try:
            return self._asked(f"read gs://{self.name}/{name}", download)
        except errors.NotFound as failure:
            if "bucket" in failure.message.lower() and "does not exist" in failure.message.lower():
                raise
            return None

    def write(self, name: str, document: Any, *, generation: int | None) -> int:
        """Write an object as JSON and return its new generation.

        :param generation: the one that is to be replaced; 0 when there must be none; None for any. Raises Conflict
            when another one is there
        """
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        return self.write_text(name, text, generation=generation, content_type="application/json")

    def write_text(
        self, name: str, text: str, *, generation: int | None, content_type: str = "text/plain; charset=utf-8"
    ) -> int:
        """Write an object as it is, like `write`."""

        def upload() -> int:
            blob = self._bucket.blob(name)
            blob.upload_from_string(
                text, content_type=content_type, if_generation_match=generation, timeout=REQUEST_SECONDS
            )
            return int(blob.generation)

        return self._asked(f"write gs://{self.name}/{name}", upload)

    def delete(self, name: str, *, generation: int) -> bool:
        """Delete an object in one generation. Return False when there is none; raises Conflict on another one."""
        try:
            self._asked(
                f"delete gs://{self.name}/{name}",
                lambda: self._bucket.blob(name).delete(if_generation_match=generation, timeout=REQUEST_SECONDS),
            )
        except errors.NotFound:
            return False
        return True

    def is_hierarchical(self) -> bool | None:
        """Say whether the bucket has a hierarchical namespace. Raises NotFound when there is no such bucket."""
        bucket = self._asked(
            f"look at gs://{self.name}",
            lambda: self._client.get_bucket(self.name, **self._reading),
        )
        return bool(bucket.hierarchical_namespace_enabled)

    @property
    def clock_ahead(self) -> timedelta | None:
        """Return how far this machine's clock is ahead of the service's; None before the first listing."""
        return self._api.clock_ahead

    @property
    def library_client(self) -> Any:
        """Return the `google.cloud.storage.Client` itself, for what this class has no method for."""
        return self._asked(f"open gs://{self.name}", lambda: self._client)

    def metadata(self) -> dict[str, Any]:
        """Return the bucket's own description, as the API spells it. Raises NotFound when there is no such bucket."""
        bucket = self._asked(f"look at gs://{self.name}", lambda: self._client.get_bucket(self.name, **self._reading))
        return dict(bucket._properties)

    def policy(self) -> dict[str, Any]:
        """Return who may do what with the bucket: version and bindings. Raises NotFound without the bucket."""
        found = self._asked(
            f"look at the policy of gs://{self.name}",
            lambda: self._bucket.get_iam_policy(requested_policy_version=3, **self._reading),
        )
        return dict(found.to_api_repr())

    def run(self, steps: Steps[Result], *, at_once: int = 1) -> Result:
        """Carry out a reading, so many requests of each batch at once, and return its result."""
        answers: list[Answer] | None = None
        if at_once > 1:
            self._widen(at_once)
        with ThreadPoolExecutor(at_once, "everstep-reading") as threads:
            try:
                while True:
                    batch = next(steps) if answers is None else steps.send(answers)
                    side_by_side = at_once > 1 and len(batch) > 1
                    answers = list(threads.map(self._answer, batch)) if side_by_side else list(map(self._answer, batch))
            except StopIteration as done:
                result: Result = done.value
                return result

    def _widen(self, connections: int) -> None:
        """Keep so many connections open: else all but ten are opened anew for each request."""
        if connections <= self._connections:
            return
        session = self._client._http
        # Not by an import of requests: where another thread imports it at that moment, that fails.
        for scheme in ("http://", "https://"):
            session.mount(scheme, type(session.get_adapter(scheme))(pool_maxsize=connections))
        self._connections = connections

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, ListRequest):
            return self.list_level(request.prefix)
        if isinstance(request, SizeRequest):
            return self.size(request.prefix)
        assert isinstance(request, ReadRequest)
        return self.read(request.name)

    def _list(self, prefix: str) -> Listing:
        # Folders of a hierarchical bucket that hold no object yet show up as prefixes only when asked for.
        query = {
            "prefix": prefix,
            "delimiter": "/",
            "includeFoldersAsPrefixes": "true",
            "fields": LISTED_FIELDS,
        }
        objects = []
        prefixes: set[str] = set()
        while True:
            # The library's own listing takes three times as long, and more for making its object of each entry.
            page = self._api.send("GET", place(self.name, "o"), query, where=f"list gs://{self.name}/{prefix}")
            objects += [listed_object(item["name"].removeprefix(prefix), item) for item in page.get("items", ())]
            prefixes.update(page.get("prefixes", ()))
            if not page.get("nextPageToken"):
                break
            query["pageToken"] = page["nextPageToken"]
        folders = (folder.removeprefix(prefix).rstrip("/") for folder in prefixes)
        return Listing(tuple(each for each in objects if each.name), tuple(sorted(each for each in folders if each)))

    @staticmethod
    def _asked(where: str, ask: Callable[[], Value]) -> Value:
        with errors.translated(where):
            return ask()
