"""Tells failures of storage from errors of the training code, where both come out of one call of Orbax or a client.

A failure of storage passes or is mended while the run restarts from its RAM disks, so it must not end the run as an
exception of the user's code does. Answers such as 403, and state of the wrong shape, are left as they are.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from everstep_trainer.errors import StorageFailed, TrainerError

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_TRANSIENT = re.compile(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED): ")
_UNREACHABLE = frozenset({"RetryError", "TransportError", "ClientConnectionError", "ServerDisconnectedError"})
"""Of google.api_core, google.auth and aiohttp, which are not imported for this."""
_FULL = "No space left on device"


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """Raise StorageFailed for what fails inside because of storage; ``what`` completes "… failed"."""
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        if any(_disk_is_full(cause) for cause in causes(error)):
            raise StorageFailed(
                f"{what} failed: the disk is full. A RAM disk holds the newest step, the one in the making and the one "
                "that is being backed up: raise inMemoryVolumeSize of the CheckpointConfiguration"
            ) from error
        if any(_bucket_is_out(cause) for cause in causes(error)):
            raise StorageFailed(f"{what} failed, since the bucket does not answer as it should: {error}") from error
        raise


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _disk_is_full(error: BaseException) -> bool:
    return (isinstance(error, OSError) and error.errno == errno.ENOSPC) or _FULL in str(error)


def _bucket_is_out(error: BaseException) -> bool:
    status = getattr(error, "code", None)
    if isinstance(status, int):
        return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS
    if isinstance(error, OSError):
        return not isinstance(error, FileNotFoundError | PermissionError | FileExistsError)
    return type(error).__name__ in _UNREACHABLE or _TRANSIENT.search(str(error)) is not None
