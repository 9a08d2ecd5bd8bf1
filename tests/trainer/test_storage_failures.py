from __future__ import annotations

import errno

import pytest

from everstep_trainer import storage_failures
from everstep_trainer.errors import ConfigurationError, StorageFailed


class HttpError(Exception):
    """As gcsfs and google.api_core have it: with the answer's status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"answered with {code}")
        self.code = code


class ServerDisconnectedError(Exception):
    """As aiohttp has it."""


def wrapped(cause: Exception) -> Exception:
    outer = ValueError("Failed to commit")
    outer.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HttpError(503), "answered with 503"),
        (HttpError(429), "bucket does not answer"),
        (wrapped(HttpError(500)), "bucket does not answer"),
        (ConnectionRefusedError("refused"), "refused"),
        (ServerDisconnectedError(), "bucket does not answer"),
        (ValueError("UNAVAILABLE: error reading gs://bucket/lm"), "UNAVAILABLE"),
        (OSError(errno.ENOSPC, "No space left on device"), "raise inMemoryVolumeSize"),
        (wrapped(ValueError('INTERNAL: write "x": No space left on device')), "raise inMemoryVolumeSize"),
    ],
)
def test_storage_that_fails_is_named(error: Exception, told: str) -> None:
    with pytest.raises(StorageFailed, match=told) as raised, storage_failures.named("the save of step 7"):
        raise error
    assert "the save of step 7 failed" in str(raised.value)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        HttpError(403),
        ValueError("state has shape (3,), the checkpoint (4,)"),
        ValueError("PERMISSION_DENIED: error writing"),
        FileNotFoundError("no such checkpoint"),
        ConfigurationError("two meshes"),
    ],
)
def test_what_no_restart_mends_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, storage_failures.named("the save of step 7"):
        raise error
    assert raised.value is error
