"""Many objects and whole folders of one bucket: listed in pages, deleted in batches, renamed and deleted at once.

All of it goes through the JSON API over the session of the client library that is open already: the library has no
folders, and deletes objects one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from urllib.parse import quote

from everstep.clients import batches, errors
from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Folder, FoundObject, Outcome
from everstep.clients.errors import RemoteError, Unavailable
from everstep.clients.json_api import JsonApi, place
from everstep.clients.pace import Pace
from everstep.clients.requests import ListRequest, ReadRequest
from everstep.clients.retrying import Backoff, Tries
from everstep.clients.storage import BucketClient

AT_ONCE = 8
TOGETHER = 32
OBJECTS_PER_SECOND = 500.0
"""Half of what a bucket takes before it has grown (cloud.google.com/storage/docs/request-rate)."""
OPERATION_SECONDS = 3600.0
OBJECT_FIELDS = "items(name,generation,size,timeCreated),nextPageToken"
_POLL_FIRST, _POLL_LONGEST = 0.05, 5.0


class BulkClient:
    """Answers the requests of `everstep.clients.bulk_requests`. Every method raises `everstep.clients.errors`.

    Everything is tried again after passing failures.

    :param pace: how many objects may be changed per second, over all threads
    """

    def __init__(self, bucket: BucketClient, *, pace: Pace | None = None, backoff: Backoff | None = None) -> None:
        self.bucket = bucket
        self.pace = pace or Pace(OBJECTS_PER_SECOND)
        self._api = JsonApi(lambda: bucket.library_client, backoff=backoff, busy=self.pace.refused)

    def run(
        self, steps: bulk.BulkSteps[bulk.Result], *, before: Callable[[Sequence[bulk.Request]], None] | None = None
    ) -> bulk.Result:
        """Carry out a work, a few requests of each batch at once, and return its result.

        :param before: called before each few requests; what it raises ends the work
        """
        answered: list[bulk.Answer] | None = None
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket") as pool:
            try:
                while True:
                    batch = next(steps) if answered is None else steps.send(answered)
                    answered = []
                    for first in range(0, len(batch), TOGETHER):
                        some = batch[first : first + TOGETHER]
                        if before is not None:
                            before(some)
                        answered += [self.answer(some[0])] if len(some) == 1 else pool.map(self.answer, some)
            except StopIteration as done:
                result: bulk.Result = done.value
                return result
            finally:
                pool.shutdown(cancel_futures=True)

    def answer(self, request: bulk.Request) -> bulk.Answer:
        """Carry out one request."""
        match request:
            case ListRequest():
                return self.bucket.list_level(request.prefix)
            case ReadRequest():
                return self.bucket.read(request.name)
            case bulk.ObjectsRequest():
                return self.objects(request.prefix, request.token)
            case bulk.FoldersRequest():
                return self.folders(request.prefix)
            case bulk.CreateFolder():
                return self.create_folder(request.name)
            case bulk.RenameFolder():
                return self.rename_folder(request.source, request.destination)
            case bulk.DeleteTree():
                return self.delete_tree(request.name)
            case bulk.DeleteFolder():
                return self.delete_folder(request.name)
            case bulk.DeleteObjects():
                return self.delete_objects(request.objects)
            case bulk.WriteRequest():
                return self.write(request)
            case _:
                return self.bucket.size(request.prefix)

    def write(self, request: bulk.WriteRequest) -> bulk.Answer:
        """Write a document in place of one generation."""
        try:
            written = self.bucket.write(request.name, request.document, generation=request.generation)
            return bulk.Written(written)
        except errors.Conflict:
            return Outcome.CHANGED

    def objects(self, prefix: str, token: str = "") -> bulk.ObjectsPage:
        """List one page of all objects below a prefix."""
        query: dict[str, Any] = {"prefix": prefix, "maxResults": 1000, "fields": OBJECT_FIELDS}
        query |= {"pageToken": token} if token else {}
        page = self._api.send("GET", self._place("o"), query, where=f"list {self._url(prefix)}")
        found = (
            FoundObject(each["name"], int(each["generation"]), int(each.get("size", 0)), _time(each, "timeCreated"))
            for each in page.get("items") or ()
        )
        return bulk.ObjectsPage(tuple(found), page.get("nextPageToken") or "")

    def folders(self, prefix: str) -> tuple[Folder, ...]:
        """List all folders below a prefix."""
        query: dict[str, Any] = {"prefix": prefix, "pageSize": 1000}
        found: list[Folder] = []
        while True:
            page = self._api.send("GET", self._place("folders"), query, where=f"list folders of {self._url(prefix)}")
            found += [_folder(each) for each in page.get("items") or () if each["name"] != prefix]
            if not page.get("nextPageToken"):
                return tuple(found)
            query["pageToken"] = page["nextPageToken"]

    def folder(self, name: str) -> Folder | None:
        """Return a folder, or None when there is none."""
        try:
            return _folder(self._api.send("GET", self._place("folders", name), where=f"look at {self._url(name)}"))
        except errors.NotFound:
            return None

    def create_folder(self, name: str) -> Outcome:
        """Make a folder and those above it."""
        try:
            where = f"make {self._url(name)}"
            self._api.send("POST", self._place("folders"), {"recursive": "true"}, {"name": name}, where=where)
        except errors.Conflict:
            if self.folder(name) is None:
                raise
        return Outcome.DONE

    def rename_folder(self, source: str, destination: str) -> Outcome:
        """Give a folder another name, and wait until it has it."""
        path = f"{self._place('folders', source)}/renameTo/folders/{quote(destination, safe='')}"
        where = f"rename {self._url(source)} to {self._url(destination)}"
        deadline = time.monotonic() + OPERATION_SECONDS
        while True:
            try:
                with self.pace.changing(1):
                    operation = self._api.send("POST", path, where=where)
                self._wait(operation, deadline)
                return Outcome.DONE
            except errors.NotFound:
                if self.folder(source) is None:
                    return Outcome.DONE if self.folder(destination) is not None else Outcome.GONE
                raise
            except errors.Conflict as refused:
                if refused.status == 412:
                    return Outcome.CHANGED
                found = self.folder(source)
                if found is not None and not found.renaming:
                    if self.folder(destination) is not None:
                        return Outcome.EXISTS
                    raise
                # Somebody, or a try whose answer was lost, renames it now.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_FIRST)

    def delete_tree(self, name: str) -> Outcome:
        """Let the service delete a folder and all below it, and wait until it has."""
        try:
            path = f"{self._place('folders', name)}/deleteRecursive"
            operation = self._api.send("POST", path, where=f"delete {self._url(name)}")
            self._wait(operation, time.monotonic() + OPERATION_SECONDS)
        except errors.NotFound:
            return Outcome.DONE if self.folder(name) is None else Outcome.REFUSED
        except (errors.Forbidden, errors.Invalid):
            return Outcome.REFUSED
        return Outcome.DONE

    def delete_folder(self, name: str) -> Outcome:
        """Delete an empty folder."""
        try:
            with self.pace.changing(1):
                self._api.send("DELETE", self._place("folders", name), where=f"delete {self._url(name)}")
        except errors.NotFound:
            return Outcome.GONE
        except errors.Conflict:
            return Outcome.EXISTS
        return Outcome.DONE

    def delete_objects(self, objects: Sequence[FoundObject]) -> tuple[Outcome, ...]:
        """Delete objects, each in its generation; parts that failed for now are tried again, and only those."""
        if len(objects) > bulk.LARGEST_BATCH:
            raise ValueError(f"at most {bulk.LARGEST_BATCH} objects at once, not {len(objects)}")
        results: list[Outcome | None] = [None] * len(objects)
        tries = Tries(self._api.backoff)
        left = list(range(len(objects)))
        while left:
            now = left[: self.pace.largest]
            failures = self._batch([objects[number] for number in now])
            passing: RemoteError | None = None
            for number, failure in zip(now, failures, strict=True):
                if isinstance(failure, Unavailable):
                    passing = failure
                else:
                    results[number] = _deleted(failure)
            left = [number for number in left if results[number] is None]
            if passing is not None:
                self._api.hold_back(tries, passing)
            else:
                self.pace.taken()
        return tuple(result for result in results if result is not None)

    def _batch(self, objects: Sequence[FoundObject]) -> list[RemoteError | None]:
        where = f"delete {len(objects)} objects of gs://{self.bucket.name}/, {objects[0].name} first"
        try:
            with self.pace.changing(len(objects)):
                answer = self._api.send_once(
                    "POST",
                    "/batch/storage/v1",
                    where,
                    data=batches.deletions(self.bucket.name, objects),
                    headers={"Content-Type": batches.CONTENT_TYPE},
                )
            return batches.answers(answer.headers.get("Content-Type", ""), answer.content, len(objects), where)
        except Unavailable as failure:
            return [failure] * len(objects)

    def _wait(self, operation: Mapping[str, Any], deadline: float) -> None:
        """Wait until an operation is done. Raises its error."""
        pause = _POLL_FIRST
        while not operation.get("done"):
            if time.monotonic() > deadline:
                raise Unavailable(f"{operation.get('name')}: not done after {OPERATION_SECONDS:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _POLL_LONGEST)
            identifier = str(operation["name"]).rpartition("/")[2]
            operation = self._api.send("GET", self._place("operations", identifier))
        if failure := operation.get("error"):
            status = _STATUS_OF_CODE.get(int(failure.get("code", 0)), 500)
            raise errors.of_status(status, f"{operation.get('name')}: {failure.get('message')}")

    def _url(self, name: str) -> str:
        return f"gs://{self.bucket.name}/{name}"

    def _place(self, kind: str, name: str = "") -> str:
        return place(self.bucket.name, kind, name)


# Codes of google.rpc.Code that an operation ends with.
_STATUS_OF_CODE = {3: 400, 5: 404, 6: 409, 7: 403, 8: 429, 9: 409, 10: 409, 14: 503}


def _deleted(failure: RemoteError | None) -> Outcome:
    if failure is None:
        return Outcome.DONE
    if isinstance(failure, errors.NotFound):
        return Outcome.GONE
    if isinstance(failure, errors.Conflict):
        # 412 is another generation, or a retention policy that says so in words.
        return Outcome.REFUSED if "retention" in failure.message.lower() else Outcome.CHANGED
    if isinstance(failure, errors.Forbidden):
        return Outcome.REFUSED
    raise failure


def _folder(resource: Mapping[str, Any]) -> Folder:
    return Folder(
        resource["name"],
        int(resource.get("metageneration", 0)),
        _time(resource, "createTime"),
        bool(resource.get("pendingRenameInfo")),
    )


def _time(resource: Mapping[str, Any], key: str) -> datetime | None:
    return datetime.fromisoformat(resource[key]) if resource.get(key) else None
