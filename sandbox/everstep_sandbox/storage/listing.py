"""Listing objects in pages: prefix, delimiter, offsets, folders as prefixes, globs.

A page costs what it returns, not what the bucket holds: with a delimiter the walk jumps over each prefix by one
look-up in the ordered index.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.index import Index, after
from everstep_sandbox.storage.records import StoredObject

LARGEST_PAGE = 1000
_SMALLEST_BATCH = 16


@dataclass(frozen=True)
class Query:
    """What a listing asks for."""

    bucket: str
    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    end: str = ""
    token: str = ""
    limit: int = LARGEST_PAGE
    include_trailing_delimiter: bool = False
    include_folders: bool = False
    glob: str = ""


@dataclass(frozen=True)
class Page:
    items: list[StoredObject]
    prefixes: list[str]
    next_token: str | None


def page(index: Index, query: Query) -> Page:
    """The next page in name order; items and prefixes count together. Raises StorageError for a bad token."""
    cursor = max(query.prefix, query.start, _cursor(query.token))
    end = min(filter(None, (after(query.prefix), query.end)), default=None)
    wanted = re.compile(glob_pattern(query.glob)) if query.glob else None
    names = _Reader(lambda start, limit: index.objects(query.bucket, start, end, limit))
    folders = _Reader(lambda start, limit: index.folders(query.bucket, start, end, limit))
    items: list[StoredObject] = []
    prefixes: list[str] = []
    while True:
        stored = names.first(cursor)
        folder = folders.first(cursor) if query.include_folders and query.delimiter else None
        if stored is None and folder is None:
            return Page(items, prefixes, None)
        name = min(one.name for one in (stored, folder) if one is not None)
        common = _common_prefix(name, query)
        if len(items) + len(prefixes) >= query.limit:
            return Page(items, prefixes, _token(cursor))
        if common is None:
            if stored is not None and stored.name == name and (wanted is None or wanted.fullmatch(name)):
                items.append(stored)
            cursor = name + "\0"
            continue
        prefixes.append(common)
        if query.include_trailing_delimiter and stored is not None and stored.name == common:
            items.append(stored)
        following = after(common)
        if following is None:
            return Page(items, prefixes, None)
        cursor = following


def glob_pattern(glob: str) -> str:
    """A regular expression for Google's object globs: * stays within a slash, ** does not, {a,b}, [abc], ?."""
    pieces: list[str] = []
    position = 0
    depth = 0
    while position < len(glob):
        character = glob[position]
        closing = glob.find("]", position + 1)
        if glob.startswith("**/", position):
            pieces.append("(?:.*/)?")
            position += 3
            continue
        if glob.startswith("**", position):
            pieces.append(".*")
            position += 2
            continue
        if character == "[" and closing > 0:
            inside = glob[position + 1 : closing].replace("\\", "\\\\")
            pieces.append("[^" + inside[1:] + "]" if inside.startswith("!") else f"[{inside}]")
            position = closing + 1
            continue
        if character == "{":
            depth += 1
        if character == "}" and depth:
            depth -= 1
            pieces.append(")")
        elif character == "," and depth:
            pieces.append("|")
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]", "{": "(?:"}.get(character, re.escape(character)))
        position += 1
    return "".join(pieces)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


RowType = TypeVar("RowType", bound=_Named)


class _Reader(Generic[RowType]):
    """The first row at or after a cursor that only moves on; batches grow while it moves row by row."""

    def __init__(self, read: Callable[[str, int], Sequence[RowType]]) -> None:
        self._read = read
        self._rows: Sequence[RowType] = ()
        self._position = 0
        self._batch = _SMALLEST_BATCH
        self._ended = False

    def first(self, cursor: str) -> RowType | None:
        while self._position < len(self._rows):
            if self._rows[self._position].name >= cursor:
                return self._rows[self._position]
            self._position += 1
        if self._ended:
            return None
        jumped = bool(self._rows) and cursor > self._rows[-1].name + "\0"
        self._batch = _SMALLEST_BATCH if jumped else min(2 * self._batch, LARGEST_PAGE)
        self._rows = self._read(cursor, self._batch)
        self._position = 0
        self._ended = len(self._rows) < self._batch
        return self._rows[0] if self._rows else None


def _common_prefix(name: str, query: Query) -> str | None:
    if not query.delimiter:
        return None
    found = name.find(query.delimiter, len(query.prefix))
    return name[: found + len(query.delimiter)] if found >= 0 else None


def _token(cursor: str) -> str:
    return base64.urlsafe_b64encode(cursor.encode()).decode()


def _cursor(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise errors.invalid(f"Invalid page token '{token}'.", "pageToken") from None
