"""The hash that names a save's data: 64 hex digits, "D" before them for a directory.

BLAKE2b-256 stands in for the real replicator's BLAKE3. Equal content must give equal hashes on all nodes that hold
the same replica of the state, since a peer's copy is fetched by its hash.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from everstep_sandbox.checkpointing.config import ORBAX

_PIECE_BYTES = 1 << 20
_MANIFEST = "manifest.ocdbt"


def digest(path: Path, framework: str) -> str:
    """The hash of a save. Orbax: of the stored keys and values; else: of every file's content."""
    if not path.is_dir():
        return _file(path)
    database = _first_database(path) if framework == ORBAX else None
    return "D" + (_tree(path) if database is None else _keys_and_values(database))


def _first_database(path: Path) -> Path | None:
    """The first directory, parents before children, that holds an OCDBT manifest."""
    for directory, children, files in os.walk(path):
        children.sort()
        if _MANIFEST in files:
            return Path(directory)
    return None


def _keys_and_values(database: Path) -> str:
    """Files of an OCDBT database have random names and times inside; its keys and values are what counts."""
    import tensorstore  # Costs 60 MB of memory: only nodes that really save load it.

    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{database}/"}).result()
    whole = hashlib.blake2b(digest_size=32)
    for key in sorted(store.list().result()):
        value = bytes(store.read(key).result().value)
        for part in (key, value):
            whole.update(len(part).to_bytes(8, "big"))
            whole.update(part)
    return whole.hexdigest()


def _tree(path: Path) -> str:
    """Of all files' contents, whatever the files are called and in which order they come."""
    contents = sorted(_file(file) for file in path.rglob("*") if file.is_file())
    return hashlib.blake2b("".join(contents).encode(), digest_size=32).hexdigest()


def _file(path: Path) -> str:
    whole = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            whole.update(piece)
    return whole.hexdigest()
