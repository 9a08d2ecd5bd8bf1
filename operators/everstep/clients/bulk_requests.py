"""What a sweep asks of a bucket beside listing one level and reading, apart from how it is sent.

Together with `everstep.clients.requests` these are the requests of a generator of batches: it yields requests, is sent
the answers in the same order, and returns its result. All requests of one batch may be under way at once. Each is safe
to be sent again after its answer was lost: what it wanted is then found done.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from everstep.clients import requests

LARGEST_BATCH = 100
"""Deletions in one batch (cloud.google.com/storage/docs/batch)."""


class Outcome(StrEnum):
    """What became of a change."""

    DONE = "done"
    """It is so now, or was so already after an answer that got lost."""
    GONE = "gone"
    """There is no such object or folder."""
    CHANGED = "changed"
    """It is in another generation or metageneration than was expected."""
    EXISTS = "exists"
    """Something of the new name is there already; or the folder is not empty."""
    REFUSED = "refused"
    """Not allowed: a hold, a retention policy or a missing permission; or the service knows no such request."""


@dataclass(frozen=True)
class FoundObject:
    """An object anywhere below a prefix, by its whole name; `size` in bytes."""

    name: str
    generation: int
    size: int = 0
    created: datetime | None = None


@dataclass(frozen=True)
class Folder:
    """A folder of a hierarchical bucket; `name` ends with `/`. `renaming`: it is being renamed now."""

    name: str
    metageneration: int
    created: datetime | None = None
    renaming: bool = False


@dataclass(frozen=True)
class ObjectsRequest:
    """List one page of all objects below a prefix. Answered by ObjectsPage."""

    prefix: str
    token: str = ""


@dataclass(frozen=True)
class ObjectsPage:
    """Objects in order of their names; `token` is empty on the last page."""

    objects: tuple[FoundObject, ...]
    token: str = ""


@dataclass(frozen=True)
class FoldersRequest:
    """List all folders below a prefix. Answered by a tuple of Folder, in order of their names."""

    prefix: str


@dataclass(frozen=True)
class CreateFolder:
    """Make a folder, and those above it. Answered by DONE, also when it is there already."""

    name: str


@dataclass(frozen=True)
class RenameFolder:
    """Give a folder, and all below it, another name: at once, as readers see it.

    Answered by DONE, GONE, EXISTS or CHANGED. DONE too when the old name is not there and the new one is.
    """

    source: str
    destination: str


@dataclass(frozen=True)
class DeleteTree:
    """Delete a folder and all below it, by the service itself. Answered by DONE (also if not there) or REFUSED."""

    name: str


@dataclass(frozen=True)
class DeleteFolder:
    """Delete a folder that is empty. Answered by DONE, GONE or EXISTS (it is not empty)."""

    name: str


@dataclass(frozen=True)
class DeleteObjects:
    """Delete at most 100 objects, each in the generation that was listed.

    Answered by a tuple of Outcome (DONE, GONE, CHANGED or REFUSED), one for each object.
    """

    objects: tuple[FoundObject, ...]


@dataclass(frozen=True)
class WriteRequest:
    """Write a JSON document in place of one generation (0: none). Answered by the new generation, or by CHANGED."""

    name: str
    document: dict[str, Any]
    generation: int


@dataclass(frozen=True)
class Written:
    """The generation of an object that was written."""

    generation: int


Request = (
    requests.Request
    | ObjectsRequest
    | FoldersRequest
    | CreateFolder
    | RenameFolder
    | DeleteTree
    | DeleteFolder
    | DeleteObjects
    | WriteRequest
)
Answer = requests.Answer | ObjectsPage | tuple[Folder, ...] | tuple[Outcome, ...] | Outcome | Written
Result = TypeVar("Result")
BulkSteps = Generator[Sequence[Request], Sequence[Answer], Result]

MUTATIONS = (CreateFolder, RenameFolder, DeleteTree, DeleteFolder, DeleteObjects, WriteRequest)


def listing(answer: Answer) -> requests.Listing:
    """Return the answer to a ListRequest. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, requests.Listing):
        raise TypeError(f"{answer!r} does not answer a list request")
    return answer


def stored(answer: Answer) -> requests.StoredObject | None:
    """Return the answer to a ReadRequest, None where there was no object. Raises TypeError on any other answer."""
    if answer is not None and not isinstance(answer, requests.StoredObject):
        raise TypeError(f"{answer!r} does not answer a read request")
    return answer


def outcome(answer: Answer) -> Outcome:
    """Return the answer to a change. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, Outcome):
        raise TypeError(f"{answer!r} does not answer a change")
    return answer


def outcomes(answer: Answer) -> tuple[Outcome, ...]:
    """Return the answer to DeleteObjects. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, tuple) or not all(isinstance(each, Outcome) for each in answer):
        raise TypeError(f"{answer!r} does not answer deletions")
    return tuple(each for each in answer if isinstance(each, Outcome))


def folders(answer: Answer) -> tuple[Folder, ...]:
    """Return the answer to FoldersRequest. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, tuple) or not all(isinstance(each, Folder) for each in answer):
        raise TypeError(f"{answer!r} does not answer a listing of folders")
    return tuple(each for each in answer if isinstance(each, Folder))


def page(answer: Answer) -> ObjectsPage:
    """Return the answer to ObjectsRequest. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, ObjectsPage):
        raise TypeError(f"{answer!r} is no page of objects")
    return answer
