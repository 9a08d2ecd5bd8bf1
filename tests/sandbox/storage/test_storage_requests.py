"""The API as a function of requests: preconditions, uploads, folders, batch, errors, survival of restarts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from everstep_sandbox.storage.errors import StorageError
from everstep_sandbox.storage.exchange import Request, Response
from everstep_sandbox.storage.router import Router, split_target
from everstep_sandbox.storage.vault import Vault

BUCKET = "/storage/v1/b/demo"


class Api:
    """A router over a directory; folder operations are done when `finish` is called."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.open()

    def open(self) -> None:
        self.pending: list[Callable[[], None]] = []
        self.vault = Vault(self._directory)
        self.router = Router(self.vault, self.pending.append)

    def reopen(self) -> None:
        self.vault.close()
        self.open()

    def finish(self) -> None:
        for action in self.pending:
            action()
        self.pending.clear()

    def call(self, method: str, target: str, body: Any = b"", headers: dict[str, str] | None = None) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, query = split_target(target)
        return self.router.handle(Request(method, path, query, headers or {}, data, "http://here"))

    def document(self, method: str, target: str, body: Any = b"", **headers: str) -> dict[str, Any]:
        found = self.call(method, target, body, headers).document
        assert found is not None
        return dict(found)

    def put(self, name: str, data: bytes, conditions: str = "") -> dict[str, Any]:
        return self.document(
            "POST", f"/upload{BUCKET}/o?uploadType=media&name={quote(name, safe='')}{conditions}", data
        )

    def read(self, name: str) -> bytes:
        file = self.call("GET", f"{BUCKET}/o/{quote(name, safe='')}?alt=media").file
        assert file is not None
        return file.path.read_bytes()[file.start : file.start + file.length]

    def names(self) -> list[str]:
        return [item["name"] for item in self.document("GET", f"{BUCKET}/o").get("items", ())]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = Api(tmp_path)
    api.call(
        "POST",
        "/storage/v1/b?project=p",
        {
            "name": "demo",
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    yield api
    api.vault.close()


def refused(status: int, reason: str) -> Any:
    """Expects a StorageError of this status and reason in Google's shape."""
    return pytest.raises(StorageError, check=lambda error: _shape(error) == (status, reason))


def _shape(error: BaseException) -> tuple[int, str]:
    assert isinstance(error, StorageError)
    document = error.document()["error"]
    assert document["errors"][0]["domain"] == "global"
    assert document["errors"][0]["message"] == document["message"]
    return document["code"], document["errors"][0]["reason"]


def test_generation_conditions_hold_everywhere(api: Api) -> None:
    stored = api.put("x", b"1", "&ifGenerationMatch=0")
    wrong = f"ifGenerationMatch={int(stored['generation']) + 1}"
    writes = [
        ("POST", f"/upload{BUCKET}/o?uploadType=media&name=x&{wrong}", b"2"),
        ("POST", f"/upload{BUCKET}/o?uploadType=resumable&name=x&{wrong}", {}),
        ("PATCH", f"{BUCKET}/o/x?{wrong}", {}),
        ("DELETE", f"{BUCKET}/o/x?{wrong}", b""),
        ("GET", f"{BUCKET}/o/x?{wrong}", b""),
        ("POST", f"{BUCKET}/o/x/copyTo/b/demo/o/x?{wrong}", {}),
        ("POST", f"{BUCKET}/o/x/rewriteTo/b/demo/o/y?ifSourceGenerationMatch=1", {}),
        ("POST", f"{BUCKET}/o/x/moveTo/o/y?ifGenerationMatch=1", b""),
        ("POST", f"{BUCKET}/o/x/compose?{wrong}", {"sourceObjects": [{"name": "x"}]}),
        ("PATCH", f"{BUCKET}/o/x?ifMetagenerationMatch=2", {}),
        ("DELETE", f"{BUCKET}/o/x?ifMetagenerationNotMatch=1", b""),
    ]
    for method, target, body in writes:
        with refused(412, "conditionNotMet"):
            api.call(method, target, body)
    assert api.read("x") == b"1"
    assert api.names() == ["x"]


def test_a_read_of_what_the_reader_has_is_not_modified(api: Api) -> None:
    stored = api.put("x", b"1")
    with refused(304, "notModified"):
        api.call("GET", f"{BUCKET}/o/x?ifGenerationNotMatch={stored['generation']}")


def test_a_replaced_generation_is_gone(api: Api) -> None:
    first = api.put("x", b"1")
    second = api.put("x", b"2")
    assert int(second["generation"]) > int(first["generation"])
    with refused(404, "notFound"):
        api.call("GET", f"{BUCKET}/o/x?alt=media&generation={first['generation']}")


def test_checksums_are_those_of_the_bytes_and_are_checked(api: Api) -> None:
    md5 = base64.b64encode(hashlib.md5(b"hello").digest()).decode()
    assert api.put("x", b"hello")["md5Hash"] == md5
    with refused(400, "invalid"):
        api.call("POST", f"/upload{BUCKET}/o?uploadType=media&name=y", b"torn", {"x-goog-hash": f"md5={md5}"})
    assert api.names() == ["x"]


@pytest.mark.parametrize(
    ("header", "expected", "content_range"),
    [
        ("bytes=2-3", b"23", "bytes 2-3/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-4", b"6789", "bytes 6-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ],
)
def test_ranges(api: Api, header: str, expected: bytes, content_range: str) -> None:
    api.put("x", b"0123456789")
    response = api.call("GET", f"{BUCKET}/o/x?alt=media", headers={"range": header})
    assert response.status == 206
    assert response.headers["Content-Range"] == content_range
    assert response.file is not None
    assert response.file.path.read_bytes()[response.file.start :][: response.file.length] == expected


def test_a_range_after_the_end_is_refused(api: Api) -> None:
    api.put("x", b"0123456789")
    with refused(416, "requestedRangeNotSatisfiable"):
        api.call("GET", f"{BUCKET}/o/x?alt=media", headers={"range": "bytes=10-"})


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
def test_multipart_uploads_keep_content_that_looks_like_a_boundary(api: Api, line_end: bytes) -> None:
    content = b"--cut" + line_end + b"\x00\n"
    metadata = b'{"name": "a/b", "metadata": {"k": "v"}}'
    first = [b"--cut", b"Content-Type: application/json", b"", metadata]
    second = [b"--cut", b"Content-Type: text/plain", b"", content, b"--cut--", b""]
    body = line_end.join([*first, *second])
    stored = api.document(
        "POST", f"/upload{BUCKET}/o?uploadType=multipart", body, **{"content-type": "multipart/related; boundary=cut"}
    )
    assert (stored["contentType"], stored["metadata"]) == ("text/plain", {"k": "v"})
    assert api.read("a/b") == content


def test_a_resumable_upload_goes_on_after_a_restart(api: Api) -> None:
    started = api.call("POST", f"/upload{BUCKET}/o?uploadType=resumable", {"name": "big"})
    session = started.headers["Location"].removeprefix("http://here")
    first = api.call("PUT", session, b"01234", {"content-range": "bytes 0-4/10"})
    assert (first.status, first.headers["Range"]) == (308, "bytes=0-4")
    api.reopen()
    asked = api.call("PUT", session, b"", {"content-range": "bytes */10"})
    assert (asked.status, asked.headers["Range"]) == (308, "bytes=0-4")
    api.call("PUT", session, b"3456789", {"content-range": "bytes 3-9/10"})
    assert api.read("big") == b"0123456789"
    again = api.document("PUT", session, b"", **{"content-range": "bytes */10"})
    assert again["size"] == "10"


def test_a_resumable_upload_meets_its_conditions_at_the_end_too(api: Api) -> None:
    started = api.call("POST", f"/upload{BUCKET}/o?uploadType=resumable&ifGenerationMatch=0", {"name": "x"})
    api.put("x", b"first")
    with refused(412, "conditionNotMet"):
        api.call("PUT", started.headers["Location"].removeprefix("http://here"), b"second")
    assert api.read("x") == b"first"


def test_a_cancelled_upload_is_over(api: Api) -> None:
    session = api.call("POST", f"/upload{BUCKET}/o?uploadType=resumable", {"name": "x"}).headers["Location"]
    assert api.call("DELETE", session.removeprefix("http://here")).status == 499
    with refused(410, "uploadBroken"):
        api.call("PUT", session.removeprefix("http://here"), b"late")


def test_settings_are_merged_and_counted(api: Api) -> None:
    api.put("x", b"1")
    api.call("PATCH", f"{BUCKET}/o/x", {"metadata": {"a": "1", "b": "2"}})
    changed = api.document("PATCH", f"{BUCKET}/o/x", {"metadata": {"a": None, "c": "3"}})
    assert (changed["metadata"], changed["metageneration"]) == ({"b": "2", "c": "3"}, "3")


def test_objects_bring_their_folders_and_leave_them(api: Api) -> None:
    api.put("a/b/x", b"1")
    api.call("DELETE", f"{BUCKET}/o/a%2Fb%2Fx")
    folders = api.document("GET", f"{BUCKET}/folders")["items"]
    assert [folder["name"] for folder in folders] == ["a/", "a/b/"]
    with refused(409, "conflict"):
        api.call("DELETE", f"{BUCKET}/folders/a%2F")
    assert api.call("DELETE", f"{BUCKET}/folders/a%2Fb%2F").status == 204


def test_a_rename_is_seen_whole_and_blocks_writes_meanwhile(api: Api) -> None:
    api.put("run/x.tmp/1", b"1")
    api.put("run/x.tmp/d/2", b"2")
    started = api.document("POST", f"{BUCKET}/folders/run%2Fx.tmp%2F/renameTo/folders/run%2Fx%2F")
    assert started["done"] is False
    assert api.names() == ["run/x.tmp/1", "run/x.tmp/d/2"]
    with refused(409, "conflict"):
        api.put("run/x.tmp/3", b"3")
    api.finish()
    assert api.names() == ["run/x/1", "run/x/d/2"]
    assert api.read("run/x/d/2") == b"2"
    operation = api.document("GET", f"{BUCKET}/operations/{started['name'].rsplit('/', 1)[1]}")
    assert operation["done"] is True
    assert operation["response"]["name"] == "run/x/"


def test_a_rename_that_a_crash_interrupted_is_done_at_the_next_start(api: Api) -> None:
    api.put("a/1", b"1")
    api.call("POST", f"{BUCKET}/folders/a%2F/renameTo/folders/b%2F")
    api.reopen()
    assert api.names() == ["b/1"]


def test_renames_that_can_not_be(api: Api) -> None:
    api.put("a/1", b"1")
    api.put("b/1", b"1")
    for target, status, reason in (("b/", 409, "conflict"), ("a/c/", 400, "invalid"), ("no/c/", 404, "notFound")):
        with refused(status, reason):
            api.call("POST", f"{BUCKET}/folders/a%2F/renameTo/folders/{quote(target, safe='')}")


def test_recursive_delete_takes_all_under_the_folder_and_nothing_else(api: Api) -> None:
    for name in ("run/1", "run/d/2", "run2/3", "run0"):
        api.put(name, b"x")
    api.call("POST", f"{BUCKET}/folders/run%2F/deleteRecursive")
    api.finish()
    assert api.names() == ["run0", "run2/3"]


def test_a_flat_bucket_has_no_folders(api: Api) -> None:
    api.call("POST", "/storage/v1/b?project=p", {"name": "flat"})
    for method, target, body in (
        ("POST", "/storage/v1/b/flat/folders", {"name": "a/"}),
        ("POST", "/storage/v1/b/flat/folders/a%2F/renameTo/folders/b%2F", b""),
    ):
        with refused(409, "conflict"):
            api.call(method, target, body)
    layout = api.document("GET", "/storage/v1/b/flat/storageLayout")
    assert layout["hierarchicalNamespace"] == {"enabled": False}


def test_hierarchy_can_not_be_turned_on_later(api: Api) -> None:
    api.call("POST", "/storage/v1/b?project=p", {"name": "flat"})
    with refused(400, "invalid"):
        api.call("PATCH", "/storage/v1/b/flat", {"hierarchicalNamespace": {"enabled": True}})


def test_buckets_and_objects_that_are_not_there(api: Api) -> None:
    for target in ("/storage/v1/b/none", "/storage/v1/b/none/o", "/storage/v1/b/none/o/x", f"{BUCKET}/o/none"):
        with refused(404, "notFound"):
            api.call("GET", target)
    with refused(409, "conflict"):
        api.call("POST", "/storage/v1/b?project=p", {"name": "demo"})


def test_only_an_empty_bucket_can_be_deleted(api: Api) -> None:
    api.put("x", b"1")
    with refused(409, "conflict"):
        api.call("DELETE", BUCKET)
    api.call("DELETE", f"{BUCKET}/o/x")
    assert api.call("DELETE", BUCKET).status == 204


def test_a_policy_read_before_a_change_can_not_be_written(api: Api) -> None:
    policy = api.document("GET", f"{BUCKET}/iam")
    policy["bindings"] = [{"role": "roles/storage.objectUser", "members": ["user:a@example.com"]}]
    assert api.document("PUT", f"{BUCKET}/iam", policy)["bindings"] == policy["bindings"]
    with refused(412, "conditionNotMet"):
        api.call("PUT", f"{BUCKET}/iam", policy)
    # Every change counts, not only the first.
    later = api.document("GET", f"{BUCKET}/iam")
    api.document("PUT", f"{BUCKET}/iam", later)
    with refused(412, "conditionNotMet"):
        api.call("PUT", f"{BUCKET}/iam", later)


def test_a_batch_answers_each_part_in_its_place(api: Api) -> None:
    api.put("x", b"1")
    parts = [
        b"--b\r\nContent-Type: application/http\r\nContent-ID: <%d>\r\n\r\n%s %s HTTP/1.1\r\n\r\n" % one
        for one in ((1, b"DELETE", f"{BUCKET}/o/x".encode()), (2, b"GET", f"{BUCKET}/o/none".encode()))
    ]
    body = b"\r\n".join(parts) + b"\r\n--b--"
    answer = api.call("POST", "/batch/storage/v1", body, {"content-type": "multipart/mixed; boundary=b"}).body
    assert b"Content-ID: <response-1>\r\n\r\nHTTP/1.1 204 No Content" in answer
    assert b"Content-ID: <response-2>\r\n\r\nHTTP/1.1 404 Not Found" in answer
    assert api.names() == []


def test_a_batch_of_more_than_a_hundred_calls_is_refused(api: Api) -> None:
    part = f"--b\r\nContent-Type: application/http\r\n\r\nGET {BUCKET}/o/x HTTP/1.1\r\n\r\n".encode()
    with refused(400, "invalid"):
        api.call("POST", "/batch", part * 101 + b"--b--", {"content-type": "multipart/mixed; boundary=b"})


def test_content_files_go_with_their_objects(api: Api, tmp_path: Path) -> None:
    for data in (b"1", b"2"):
        api.put("x", data)
    api.call("POST", f"{BUCKET}/o/x/copyTo/b/demo/o/y")
    (tmp_path / "demo" / "objects" / "torn").write_bytes(b"left by a crash")
    api.reopen()
    assert len(list((tmp_path / "demo" / "objects").iterdir())) == 2
    for name in ("x", "y"):
        assert api.read(name) == b"2"
        api.call("DELETE", f"{BUCKET}/o/{name}")
    assert not list((tmp_path / "demo" / "objects").iterdir())


def test_requests_are_counted_by_kind(api: Api) -> None:
    api.put("x", b"1")
    api.names()
    api.names()
    assert api.router.counts["POST object"] == 1
    assert api.router.counts["GET objects"] == 2
