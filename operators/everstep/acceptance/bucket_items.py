"""What Everstep relies on of Cloud Storage, tried out in a folder of its own."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from everstep.acceptance.items import NotJudged, Record
from everstep.clients import errors

# What the roles that Everstep hands out need of folders (cloud.google.com/storage/docs/access-control/iam-roles).
FOLDER_PERMISSIONS = ("create", "delete", "get", "list", "rename")
OBJECT_USER = "roles/storage.objectUser"
OPERATION_SECONDS = 120.0
# Told rather than left out: nobody should think that they were seen.
NOT_TRIED = (
    (
        "bucket.request-rate",
        "a hierarchical bucket takes 8 times as many requests a second at first",
        "that takes a load of thousands of requests a second",
    ),
    ("bucket.autoclass", "under Autoclass an early deletion costs nothing", "only the bill tells, days later"),
)


class Folder:
    """A scratch folder in a bucket, through the storage client and its session.

    :param client: a `google.cloud.storage.Client`
    """

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self.client = client
        self.bucket = client.bucket(bucket)
        self.prefix = prefix

    def put(self, name: str, body: bytes, generation: int | None = None) -> Any:
        """Write an object and return it. Raises Conflict when the generation precondition fails."""
        blob = self.bucket.blob(self.prefix + name)
        with errors.translated(f"write {name}"):
            blob.upload_from_string(body, if_generation_match=generation)
        return blob

    def names(self) -> list[str]:
        """Return all objects of the folder, without its own name."""
        with errors.translated(f"list {self.prefix}"):
            return sorted(
                blob.name.removeprefix(self.prefix) for blob in self.client.list_blobs(self.bucket, prefix=self.prefix)
            )

    def level(self, below: str = "") -> tuple[list[str], list[str]]:
        """Return objects and sub-folders directly below a prefix."""
        prefix = self.prefix + below
        with errors.translated(f"list {prefix}"):
            blobs = self.client.list_blobs(self.bucket, prefix=prefix, delimiter="/", include_folders_as_prefixes=True)
            names = sorted(blob.name.removeprefix(prefix) for blob in blobs)
            return names, sorted(folder.removeprefix(prefix) for folder in blobs.prefixes)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """Ask the JSON API below the bucket, over the client's own session."""
        with errors.translated(f"{method} {path}"):
            answer: dict[str, Any] = self.client._connection.api_request(
                method=method, path=f"/b/{self.bucket.name}{path}", data=body, query_params=query or None
            )
        return answer

    def make(self, name: str) -> None:
        """Make a folder, and those above it."""
        self.call("POST", "/folders", {"name": self.prefix + name}, recursive="true")

    def rename(self, name: str, to: str) -> None:
        """Rename a folder, and wait until that is done."""
        source, target = quote(self.prefix + name, safe=""), quote(self.prefix + to, safe="")
        self._finished(self.call("POST", f"/folders/{source}/renameTo/folders/{target}"))

    def delete_recursively(self, name: str) -> None:
        """Delete a folder with all that is below it, and wait until that is done."""
        self._finished(self.call("POST", f"/folders/{quote(self.prefix + name, safe='')}/deleteRecursive"))

    def _finished(self, operation: dict[str, Any]) -> None:
        deadline = time.monotonic() + OPERATION_SECONDS
        while not operation.get("done"):
            if time.monotonic() > deadline:
                raise errors.Unavailable(f"operation {operation.get('name')} has not ended")
            time.sleep(0.2)
            operation = self.call("GET", f"/operations/{operation['name'].rsplit('/', 1)[-1]}")
        if "error" in operation:
            raise errors.Invalid(f"operation {operation['name']}: {operation['error']}")


@contextmanager
def scratch(client: Any, bucket: str, prefix: str) -> Iterator[Folder]:
    """Lend a folder of a bucket, and remove it with all objects in it."""
    folder = Folder(client, bucket, prefix)
    try:
        yield folder
    finally:
        for name in folder.names():
            folder.bucket.blob(prefix + name).delete()
        with suppress(errors.RemoteError):
            folder.delete_recursively("")


def judge(record: Record, folder: Folder) -> None:
    """Judge every item of Cloud Storage."""
    _layout(record, folder)
    _preconditions(record, folder)
    _folders(record, folder)
    _listing(record, folder)
    _protection(record, folder)
    _rights(record, folder)


def _layout(record: Record, folder: Folder) -> None:
    with record.item("bucket.hierarchical", "the bucket has a hierarchical namespace") as seen:
        bucket = folder.client.get_bucket(folder.bucket.name)
        seen.expect(bool(bucket.hierarchical_namespace_enabled), bucket.hierarchical_namespace_enabled)
    with record.item("bucket.soft-delete", "the bucket says how long deleted bytes are kept and billed") as seen:
        policy = folder.call("GET", "").get("softDeletePolicy")
        if policy is None:
            raise NotJudged("the bucket has no softDeletePolicy field")
        seen.saw(f"{policy.get('retentionDurationSeconds')} s")


def _preconditions(record: Record, folder: Folder) -> None:
    with record.item("object.create-only", "of two creations with ifGenerationMatch=0, the second is refused") as seen:
        first = folder.put("lease", b"one", 0)
        try:
            folder.put("lease", b"two", 0)
        except errors.Conflict as refusal:
            seen.saw(f"HTTP {refusal.status}")
        else:
            raise AssertionError("both were taken")
    with record.item("object.replace", "a replacement needs the generation that is there") as seen:
        second = folder.put("lease", b"two", first.generation)
        try:
            folder.put("lease", b"three", first.generation)
        except errors.Conflict as refusal:
            seen.saw(f"HTTP {refusal.status} for the old generation")
        else:
            raise AssertionError("an old generation was replaced")
    with record.item("object.delete", "a deletion needs the generation that is there") as seen:
        try:
            with errors.translated("delete lease"):
                folder.bucket.blob(folder.prefix + "lease").delete(if_generation_match=first.generation)
        except errors.Conflict as refusal:
            seen.saw(f"HTTP {refusal.status} for the old generation")
        else:
            raise AssertionError("an old generation deleted a new one")
        second.delete(if_generation_match=second.generation)


def _folders(record: Record, folder: Folder) -> None:
    with record.item("folder.empty", "an empty folder shows in a listing by levels") as seen:
        folder.make("2026-01-01_00-00/")
        folders = folder.level()[1]
        seen.expect("2026-01-01_00-00/" in folders, folders)
    with record.item("folder.rename", "a folder is renamed with all that is in it, at once") as seen:
        for number in range(20):
            folder.put(f"2026-01-01_00-00/data/{number}", b"x")
        folder.rename("2026-01-01_00-00/", ".trash-2026-01-01_00-00/")
        names = folder.names()
        moved = [name for name in names if name.startswith(".trash-2026-01-01_00-00/data/")]
        seen.expect(len(moved) == 20 and len(names) == 20, f"{len(moved)} of 20 objects under the new name")
    with record.item("folder.rename-over", "a folder is not renamed over one that is there") as seen:
        folder.make("other/")
        try:
            folder.rename("other/", ".trash-2026-01-01_00-00/")
        except errors.RemoteError as refusal:
            seen.saw(f"HTTP {refusal.status}")
        else:
            raise AssertionError("it was renamed")
    with record.item("folder.delete-recursively", "a folder goes with all that is in it, in one request") as seen:
        folder.delete_recursively(".trash-2026-01-01_00-00/")
        seen.expect(folder.names() == [], f"{len(folder.names())} objects left")


def _listing(record: Record, folder: Folder) -> None:
    with record.item("listing.checksum", "a listing tells the content of a .meta by its checksum") as seen:
        digest = "D" + "0" * 64
        blob = folder.put("run-s1-n0-w0.meta", digest.encode())
        with errors.translated("list"):
            listed = next(iter(folder.client.list_blobs(folder.bucket, prefix=blob.name)))
        wanted = base64.b64encode(hashlib.md5(digest.encode(), usedforsecurity=False).digest()).decode()
        seen.expect(listed.md5_hash == wanted, f"md5Hash {listed.md5_hash}, crc32c {listed.crc32c}")
    with record.item("object.move", "an object is renamed in one request") as seen:
        source, target = (quote(folder.prefix + name, safe="") for name in ("run-s1-n0-w0.meta", "moved"))
        folder.call("POST", f"/o/{source}/moveTo/o/{target}")
        seen.expect(folder.level()[0] == ["moved"], folder.level()[0])


def _protection(record: Record, folder: Folder) -> None:
    with record.item("object.hold", "an object under a hold is not deleted (403 or 412)") as seen:
        blob = folder.put("held", b"x")
        blob.temporary_hold = True
        with errors.translated("hold"):
            blob.patch()
        try:
            with errors.translated("delete"):
                blob.delete()
        except (errors.Forbidden, errors.Conflict) as refusal:
            seen.saw(f"HTTP {refusal.status}")
        else:
            raise AssertionError("it was deleted")
        finally:
            with suppress(Exception):
                blob.temporary_hold = False
                blob.patch()


def _rights(record: Record, folder: Folder) -> None:
    wanted = [f"storage.folders.{each}" for each in FOLDER_PERMISSIONS]
    with record.item("rights.folders", "an identity can ask what it may do with folders") as seen:
        with errors.translated("testIamPermissions"):
            held = folder.bucket.test_iam_permissions(wanted)
        seen.expect(bool(held), f"this identity has {', '.join(sorted(held)) or 'none of them'}")
    with record.item("rights.object-user", f"{OBJECT_USER} includes folders, as the driver needs them") as seen:
        if not folder.client.api_endpoint.endswith(".googleapis.com"):
            raise NotJudged("only Google's own IAM service knows what its roles include")
        answer = folder.client._http.get(f"https://iam.googleapis.com/v1/{OBJECT_USER}", timeout=30)
        if answer.status_code != 200:
            raise NotJudged(f"IAM answers HTTP {answer.status_code}")
        missing = sorted(set(wanted) - set(answer.json()["includedPermissions"]))
        seen.expect(not missing, f"without {', '.join(missing)}" if missing else "all of them")
    for item, claim, why in NOT_TRIED:
        record.unknown(item, claim, why)
