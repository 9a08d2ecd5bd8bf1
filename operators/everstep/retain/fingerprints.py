"""Fingerprints of folders: whether the bucket still holds what a plan was made for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from everstep.checkpoints.catalogue import ListedObject


def of_listing(objects: Iterable[ListedObject], folders: Iterable[str]) -> str:
    """Return `sha256:…` over one level of a folder: names, sizes, generations and metagenerations, sub-folder names.

    Where a listing gives no generation, the checksum stands in. A folder's own metageneration says nothing of what is
    below it, so what lies in sub-folders is not covered: nothing writes into finished data, it is named by its content.
    """
    digest = hashlib.sha256()
    for line in sorted(
        f"o {item.name} {item.size} {item.generation or item.md5 or item.crc32c} {item.metageneration}"
        for item in objects
    ):
        digest.update(line.encode() + b"\n")
    for name in sorted(folders):
        digest.update(f"f {name.rstrip('/')}\n".encode())
    return f"sha256:{digest.hexdigest()}"
