"""Listings: pages in name order, whatever the page size, against the plain definition."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_sandbox.storage.errors import StorageError
from everstep_sandbox.storage.index import Index, after
from everstep_sandbox.storage.listing import Query, glob_pattern, page
from everstep_sandbox.storage.records import Folder, StoredObject

NAMES = st.sets(st.text(alphabet="ab/é0", min_size=1, max_size=6), max_size=25)


def index_of(directory: str, names: set[str]) -> Index:
    index = Index(Path(directory) / "index.sqlite")
    for number, name in enumerate(names):
        index.put_object(StoredObject("b", name, number + 1, 1, 0, None, "", "", "", str(number)))
    return index


def all_pages(index: Index, **query: object) -> tuple[list[str], list[str]]:
    items: list[str] = []
    prefixes: list[str] = []
    token = ""
    while True:
        found = page(index, Query("b", token=token, **query))  # type: ignore[arg-type]
        assert len(found.items) + len(found.prefixes) <= query["limit"]  # type: ignore[operator]
        items += [stored.name for stored in found.items]
        prefixes += found.prefixes
        if found.next_token is None:
            return items, prefixes
        token = found.next_token


@settings(max_examples=150, deadline=None)
@given(
    names=NAMES,
    prefix=st.text(alphabet="ab/", max_size=2),
    delimiter=st.sampled_from(["", "/"]),
    start=st.text(alphabet="ab/", max_size=2),
    end=st.text(alphabet="ab/", max_size=2),
    limit=st.integers(1, 5),
)
def test_pages_give_each_name_once_in_order(
    names: set[str], prefix: str, delimiter: str, start: str, end: str, limit: int
) -> None:
    inside = sorted(name for name in names if name.startswith(prefix) and name >= start and (not end or name < end))
    items = [name for name in inside if not delimiter or delimiter not in name[len(prefix) :]]
    cut = [name[: name.index(delimiter, len(prefix)) + 1] for name in inside if name not in items]
    with tempfile.TemporaryDirectory() as directory:
        index = index_of(directory, names)
        found = all_pages(index, prefix=prefix, delimiter=delimiter, start=start, end=end, limit=limit)
        index.close()
    assert found == (items, sorted(set(cut)))


def test_folders_count_as_prefixes_on_request_only(tmp_path: Path) -> None:
    index = index_of(str(tmp_path), {"run/a/1", "run/c"})
    for name in ("run/", "run/a/", "run/b/", "run/b/deep/"):
        index.put_folder(Folder("b", name, "", "", 1))
    assert all_pages(index, prefix="run/", delimiter="/", limit=1) == (["run/c"], ["run/a/"])
    assert all_pages(index, prefix="run/", delimiter="/", limit=1, include_folders=True) == (
        ["run/c"],
        ["run/a/", "run/b/"],
    )


def test_a_page_with_a_delimiter_reads_few_rows(tmp_path: Path) -> None:
    names = {f"run/{folder}/{number:04}" for folder in range(20) for number in range(500)}
    index = index_of(str(tmp_path), names)
    read = 0

    class Counting(Index):
        def __init__(self) -> None:
            pass

        def objects(self, bucket: str, start: str, end: str | None, limit: int) -> list[StoredObject]:
            nonlocal read
            rows = index.objects(bucket, start, end, limit)
            read += len(rows)
            return rows

    found = page(Counting(), Query("b", prefix="run/", delimiter="/"))
    assert len(found.prefixes) == 20
    assert read < 1000


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("run/*.meta", ["run/a.meta"], ["run/x/a.meta", "run/a.data"]),
        ("run/**.meta", ["run/a.meta", "run/x/y/a.meta"], ["else/a.meta"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["ba"]),
        ("s?-[0-9].{meta,data}", ["s1-2.meta", "sx-3.data"], ["s-2.meta", "s1-x.meta", "s1-2.tmp"]),
    ],
)
def test_globs(glob: str, matching: list[str], other: list[str]) -> None:
    pattern = re.compile(glob_pattern(glob))
    assert [name for name in matching + other if pattern.fullmatch(name)] == matching


def test_a_made_up_page_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="page token"):
        page(index_of(str(tmp_path), set()), Query("b", token="!"))


def test_the_string_after_a_prefix() -> None:
    assert after("a/") == "a0"
    assert after("a\ud7ff") == "a\ue000"
    assert after("a\U0010ffff") == "b"
    assert after("\U0010ffff") is None
