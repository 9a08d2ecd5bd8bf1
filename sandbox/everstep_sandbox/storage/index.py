"""The index of everything stored: one SQLite file, ordered by name, durable across kill -9.

One thread uses it. A change of several rows (a folder's rename, say) is one transaction, so it is seen whole or
not at all, also after a crash.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everstep_sandbox.storage.records import Bucket, Folder, Operation, StoredObject

_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, hierarchical INTEGER, created TEXT, updated TEXT, metageneration INTEGER,
    settings TEXT, policy TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT, name TEXT, generation INTEGER, metageneration INTEGER, size INTEGER, md5 TEXT, crc32c TEXT,
    created TEXT, updated TEXT, content TEXT, components INTEGER, settings TEXT,
    PRIMARY KEY (bucket, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folders (
    bucket TEXT, name TEXT, created TEXT, updated TEXT, metageneration INTEGER, pending_rename TEXT,
    PRIMARY KEY (bucket, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS operations (
    bucket TEXT, identifier TEXT, kind TEXT, source TEXT, destination TEXT, created TEXT, done INTEGER,
    response TEXT, PRIMARY KEY (bucket, identifier)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    identifier TEXT PRIMARY KEY, bucket TEXT, name TEXT, request TEXT, resource TEXT) WITHOUT ROWID;
"""


def after(prefix: str) -> str | None:
    """The first string after all strings that start with `prefix`, None when there is none."""
    while prefix:
        code = ord(prefix[-1])
        if code < 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if code == 0xD7FF else code + 1)
        prefix = prefix[:-1]
    return None


class Index:
    """Rows by key and by range of names. Names sort as UTF-8, as the service sorts them."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.executescript(_SCHEMA)
        (newest,) = self._database.execute("SELECT coalesce(max(generation), 0) FROM objects").fetchone()
        self._last_generation = int(newest)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are kept together or, when an error leaves the block, not at all."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def next_generation(self) -> int:
        """Microseconds since 1970, never twice the same."""
        self._last_generation = max(self._last_generation + 1, time.time_ns() // 1000)
        return self._last_generation

    # Buckets

    def bucket(self, name: str) -> Bucket | None:
        row = self._database.execute(
            "SELECT name, hierarchical, created, updated, metageneration, settings FROM buckets WHERE name = ?",
            (name,),
        ).fetchone()
        return _bucket(row) if row else None

    def buckets(self, prefix: str) -> list[Bucket]:
        rows = self._database.execute(
            "SELECT name, hierarchical, created, updated, metageneration, settings FROM buckets ORDER BY name"
        )
        return [_bucket(row) for row in rows if row[0].startswith(prefix)]

    def put_bucket(self, bucket: Bucket) -> None:
        self._database.execute(
            "INSERT INTO buckets (name, hierarchical, created, updated, metageneration, settings)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET updated = excluded.updated,"
            " hierarchical = excluded.hierarchical,"
            " metageneration = excluded.metageneration, settings = excluded.settings",
            (
                bucket.name,
                bucket.hierarchical,
                bucket.created,
                bucket.updated,
                bucket.metageneration,
                json.dumps(bucket.settings),
            ),
        )

    def delete_bucket(self, name: str) -> None:
        for table in ("folders", "operations", "uploads"):
            self._database.execute(f"DELETE FROM {table} WHERE bucket = ?", (name,))
        self._database.execute("DELETE FROM buckets WHERE name = ?", (name,))

    def policy(self, bucket: str) -> dict[str, Any] | None:
        (text,) = self._database.execute("SELECT policy FROM buckets WHERE name = ?", (bucket,)).fetchone()
        return json.loads(text) if text else None

    def put_policy(self, bucket: str, policy: dict[str, Any]) -> None:
        self._database.execute("UPDATE buckets SET policy = ? WHERE name = ?", (json.dumps(policy), bucket))

    # Objects

    def object(self, bucket: str, name: str) -> StoredObject | None:
        row = self._database.execute("SELECT * FROM objects WHERE bucket = ? AND name = ?", (bucket, name)).fetchone()
        return _object(row) if row else None

    def objects(self, bucket: str, start: str, end: str | None, limit: int) -> list[StoredObject]:
        """Up to `limit` objects with start <= name < end in name order."""
        bound, values = _range(start, end)
        rows = self._database.execute(
            f"SELECT * FROM objects WHERE bucket = ? AND {bound} ORDER BY name LIMIT ?",
            (bucket, *values, limit),
        )
        return [_object(row) for row in rows]

    def contents(self, bucket: str) -> set[str]:
        """The content files in use."""
        rows = self._database.execute("SELECT content FROM objects WHERE bucket = ?", (bucket,))
        return {row[0] for row in rows}

    def put_object(self, stored: StoredObject) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                stored.bucket,
                stored.name,
                stored.generation,
                stored.metageneration,
                stored.size,
                stored.md5,
                stored.crc32c,
                stored.created,
                stored.updated,
                stored.content,
                stored.components,
                json.dumps(stored.settings),
            ),
        )

    def delete_object(self, bucket: str, name: str) -> None:
        self._database.execute("DELETE FROM objects WHERE bucket = ? AND name = ?", (bucket, name))

    def delete_under(self, bucket: str, prefix: str) -> list[str]:
        """Deletes folders and objects under a folder, itself included; returns the content files set free."""
        bound, values = _range(prefix, after(prefix))
        contents = [
            row[0]
            for row in self._database.execute(
                f"SELECT content FROM objects WHERE bucket = ? AND {bound}", (bucket, *values)
            )
        ]
        for table in ("objects", "folders"):
            self._database.execute(f"DELETE FROM {table} WHERE bucket = ? AND {bound}", (bucket, *values))
        return contents

    def rename_under(self, bucket: str, source: str, destination: str) -> None:
        """Gives everything under the folder `source`, itself included, a name under `destination`."""
        bound, values = _range(source, after(source))
        for table in ("objects", "folders"):
            self._database.execute(
                f"UPDATE {table} SET name = ? || substr(name, ?) WHERE bucket = ? AND {bound}",
                (destination, len(source) + 1, bucket, *values),
            )

    # Folders

    def folder(self, bucket: str, name: str) -> Folder | None:
        row = self._database.execute("SELECT * FROM folders WHERE bucket = ? AND name = ?", (bucket, name)).fetchone()
        return Folder(*row) if row else None

    def folders(self, bucket: str, start: str, end: str | None, limit: int) -> list[Folder]:
        """Up to `limit` folders with start <= name < end in name order."""
        bound, values = _range(start, end)
        rows = self._database.execute(
            f"SELECT * FROM folders WHERE bucket = ? AND {bound} ORDER BY name LIMIT ?",
            (bucket, *values, limit),
        )
        return [Folder(*row) for row in rows]

    def renaming_folder(self, bucket: str, names: list[str]) -> Folder | None:
        """The first of these folders that is being renamed."""
        marks = ", ".join("?" * len(names))
        row = self._database.execute(
            f"SELECT * FROM folders WHERE bucket = ? AND name IN ({marks}) AND pending_rename IS NOT NULL",
            (bucket, *names),
        ).fetchone()
        return Folder(*row) if row else None

    def put_folder(self, folder: Folder) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO folders VALUES (?, ?, ?, ?, ?, ?)",
            (
                folder.bucket,
                folder.name,
                folder.created,
                folder.updated,
                folder.metageneration,
                folder.pending_rename,
            ),
        )

    def delete_folder(self, bucket: str, name: str) -> None:
        self._database.execute("DELETE FROM folders WHERE bucket = ? AND name = ?", (bucket, name))

    # Operations

    def operation(self, bucket: str, identifier: str) -> Operation | None:
        row = self._database.execute(
            "SELECT * FROM operations WHERE bucket = ? AND identifier = ?", (bucket, identifier)
        ).fetchone()
        return _operation(row) if row else None

    def operations(self, bucket: str | None = None, *, pending: bool = False) -> list[Operation]:
        rows = self._database.execute("SELECT * FROM operations ORDER BY bucket, created")
        found = [_operation(row) for row in rows]
        return [one for one in found if (bucket in (None, one.bucket)) and not (pending and one.done)]

    def put_operation(self, operation: Operation) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                operation.bucket,
                operation.identifier,
                operation.kind,
                operation.source,
                operation.destination,
                operation.created,
                operation.done,
                json.dumps(operation.response),
            ),
        )

    # Resumable uploads

    def upload(self, identifier: str) -> tuple[str, str, dict[str, Any], dict[str, Any] | None] | None:
        """Bucket, name, the request that started it, and the object's resource once it is finished."""
        row = self._database.execute(
            "SELECT bucket, name, request, resource FROM uploads WHERE identifier = ?", (identifier,)
        ).fetchone()
        return (row[0], row[1], json.loads(row[2]), json.loads(row[3]) if row[3] else None) if row else None

    def put_upload(
        self,
        identifier: str,
        bucket: str,
        name: str,
        request: dict[str, Any],
        resource: dict[str, Any] | None = None,
    ) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?)",
            (identifier, bucket, name, json.dumps(request), json.dumps(resource) if resource else None),
        )

    def delete_upload(self, identifier: str) -> None:
        self._database.execute("DELETE FROM uploads WHERE identifier = ?", (identifier,))


def _range(start: str, end: str | None) -> tuple[str, tuple[str, ...]]:
    if end is None:
        return "name >= ?", (start,)
    return "name >= ? AND name < ?", (start, end)


def _bucket(row: tuple[Any, ...]) -> Bucket:
    return Bucket(row[0], bool(row[1]), row[2], row[3], row[4], json.loads(row[5]))


def _object(row: tuple[Any, ...]) -> StoredObject:
    return StoredObject(*row[:-1], json.loads(row[-1]))  # type: ignore[call-arg]


def _operation(row: tuple[Any, ...]) -> Operation:
    return Operation(*row[:-2], bool(row[-2]), json.loads(row[-1]))  # type: ignore[call-arg]
