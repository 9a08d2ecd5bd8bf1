"""Large lists in small bites, so that an event loop goes on while they are read.

Decoding JSON holds Python's global lock, also in a thread, for about 4 ms per 100 kB. So pages are asked for by their
size in bytes, large ones are decoded in a thread, and of each object only what the caller wants outlives its page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Object = dict[str, Any]
Kept = TypeVar("Kept")

PAGE_BYTES = 200_000
FIRST_PAGE = 25
LARGEST_PAGE = 500
# Below this a thread costs more than it saves.
INLINE_BYTES = 16_000


# One thread: a second one would only wait for the lock, and each keeps memory of its own for what it has decoded.
_decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everstep-decoding")


class PageSize:
    """How many objects the next page may have, by the size of those that came."""

    def __init__(self) -> None:
        self.limit = FIRST_PAGE

    def learn(self, count: int, size: int) -> None:
        """Take in a page of so many objects and bytes."""
        if count:
            wanted = int(PAGE_BYTES * count / max(size, 1))
            # Never much more at once: the objects to come may be larger than those that came.
            self.limit = max(1, min(wanted, self.limit * 4, LARGEST_PAGE))


async def decoded(body: bytes, keep: Callable[[Object], Kept | None]) -> tuple[list[Kept], Object, int]:
    """Return what is kept of a page's objects, the page's metadata, and how many objects it had.

    :param keep: reduces an object to what is wanted of it, None for nothing; may run in a thread
    """
    if len(body) <= INLINE_BYTES:
        return _decode(body, keep)
    return await asyncio.get_running_loop().run_in_executor(_decoder, _decode, body, keep)


def _decode(body: bytes, keep: Callable[[Object], Kept | None]) -> tuple[list[Kept], Object, int]:
    page = json.loads(body) if body else {}
    items = page.get("items") or []
    reduced = (keep(item) for item in items)
    return [each for each in reduced if each is not None], page.get("metadata") or {}, len(items)
