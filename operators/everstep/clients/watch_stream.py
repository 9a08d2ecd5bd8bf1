"""The events of a watch's answer, one JSON document a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from everstep.clients import errors
from everstep.clients.errors import RemoteError

# The longest that a burst of events may keep an event loop from other work.
SLICE_SECONDS = 0.005
TOO_LARGE_VERSION = "Too large resource version"


async def events(response: Any, silence: float, where: str) -> AsyncIterator[dict[str, Any]]:
    """Yield events until the server ends the answer. Raises the error of an ERROR event, and Unavailable when nothing
    came for `silence` seconds."""
    loop = asyncio.get_running_loop()
    slice_ends = loop.time() + SLICE_SECONDS
    while True:
        # Lines that have come already are read without a pause, so a burst of them must pause by itself.
        if loop.time() >= slice_ends:
            await asyncio.sleep(0)
            slice_ends = loop.time() + SLICE_SECONDS
        try:
            async with asyncio.timeout(silence):
                line = await response.content.readline()
        except TimeoutError:
            raise Stalled(f"{where}: nothing came for {silence:g} s") from None
        if not line:
            return
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            # A server that is killed in the middle of a line.
            raise errors.Unavailable(f"{where}: cut off in the middle of an event") from None
        if event.get("type") == "ERROR":
            status = event.get("object") or {}
            raise refused(
                errors.of_status(
                    int(status.get("code") or 500),
                    f"{where}: {status.get('message', 'error event')}",
                    reason=str(status.get("reason", "")),
                )
            )
        yield event


class Stalled(errors.Unavailable):
    """A watch on which nothing comes any more, not even bookmarks."""


def refused(failure: RemoteError) -> RemoteError:
    """Return what a watch's refusal means: a version that the server has not reached yet is gone for ever, since it
    belongs to another cluster or to one that was restored from a backup."""
    if failure.status == 504 and TOO_LARGE_VERSION in failure.message:
        return errors.Gone(failure.message, status=failure.status, reason=failure.reason)
    return failure
