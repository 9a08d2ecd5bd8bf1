"""What the store keeps on disk: the objects (SQLite, write-ahead log) and the log of committed writes (JSON lines)."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from everstep_sandbox.kubernetes.objects import Object, micro_timestamp

WRITE_LOG = "writes.jsonl"


class Journal:
    """Durable objects of one sandbox directory. A kill -9 of the process loses no committed write."""

    def __init__(self, directory: Path) -> None:
        folder = directory / "kubernetes"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise RuntimeError(
                f"The Kubernetes store in {folder} is in use by another process; stop that one first "
                "(`everstep sandbox down`) or choose another directory."
            ) from error
        self._database = sqlite3.connect(folder / "objects.sqlite3", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        # NORMAL loses nothing when the process dies, only when the machine does.
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT, body TEXT,"
            " PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
        )
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS version (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER)"
        )
        self._write_log = (directory / WRITE_LOG).open("a", encoding="utf-8", buffering=1)

    def version(self) -> int:
        """The resourceVersion of the last committed write; 0 for a new store."""
        row = self._database.execute("SELECT value FROM version").fetchone()
        return int(row[0]) if row else 0

    def objects(self) -> Iterator[tuple[str, Object]]:
        """Every stored object with its resource's plural."""
        for resource, body in self._database.execute("SELECT resource, body FROM objects"):
            yield resource, json.loads(body)

    def commit(
        self, resource: str, namespace: str, name: str, obj: Object | None, version: int, entry: dict[str, object]
    ) -> None:
        """Writes (or with obj None removes) one object, the version and a line of the write log."""
        self._database.execute("BEGIN")
        if obj is None:
            self._database.execute(
                "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (resource, namespace, name)
            )
        else:
            self._database.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
                (resource, namespace, name, json.dumps(obj, separators=(",", ":"))),
            )
        self._database.execute("INSERT OR REPLACE INTO version VALUES (0, ?)", (version,))
        self._database.execute("COMMIT")
        line = {"time": micro_timestamp(), **entry, "resourceVersion": str(version)}
        self._write_log.write(json.dumps(line, separators=(",", ":")) + os.linesep)

    def close(self) -> None:
        self._database.close()
        self._write_log.close()
        self._lock.close()
