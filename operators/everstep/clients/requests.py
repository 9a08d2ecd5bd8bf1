"""What is asked of a bucket, apart from how it is sent.

A reading that takes several requests, each batch depending on the answers to the last, is a generator of batches
(`Steps`): it yields requests, is sent the answers in the same order, and returns its result. So the blocking and the
asynchronous client read a run's folder by the same code, and that code can be tested without either.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from everstep.checkpoints.catalogue import ListedObject


@dataclass(frozen=True)
class ListRequest:
    """List one level below a prefix that ends with `/` (or is empty)."""

    prefix: str


@dataclass(frozen=True)
class ReadRequest:
    """Read one object."""

    name: str


@dataclass(frozen=True)
class SizeRequest:
    """Count the objects below a prefix that ends with `/`, at all levels, and their bytes."""

    prefix: str


@dataclass(frozen=True)
class Sizes:
    """How many objects there are below a prefix, and how many bytes they have."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class Listing:
    """One level: objects and sub-folders by the last part of their names."""

    objects: tuple[ListedObject, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True)
class StoredObject:
    """The body of an object, and the generation that it was read at."""

    name: str
    body: bytes
    generation: int


Request = ListRequest | ReadRequest | SizeRequest
Answer = Listing | StoredObject | Sizes | None
Result = TypeVar("Result")
Steps = Generator[Sequence[Request], Sequence[Answer], Result]


def listing(answer: Answer) -> Listing:
    """Return an answer to a ListRequest. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, Listing):
        raise TypeError(f"{answer!r} does not answer a list request")
    return answer


def stored(answer: Answer) -> StoredObject | None:
    """Return an answer to a ReadRequest, None where there was no object. Raises TypeError on any other answer."""
    if answer is not None and not isinstance(answer, StoredObject):
        raise TypeError(f"{answer!r} does not answer a read request")
    return answer


def sizes(answer: Answer) -> Sizes:
    """Return an answer to a SizeRequest. Raises TypeError when a client mixed answers up."""
    if not isinstance(answer, Sizes):
        raise TypeError(f"{answer!r} does not answer a size request")
    return answer


LISTED_FIELDS = (
    "items(name,size,md5Hash,crc32c,timeCreated,generation,metageneration,temporaryHold,eventBasedHold),"
    "prefixes,nextPageToken"
)
"""What a listing is asked for: all that `listed_object` reads."""


def listed_object(name: str, resource: dict[str, Any]) -> ListedObject:
    """Return an object resource of the JSON API as the catalogue wants it."""
    created = resource.get("timeCreated")
    return ListedObject(
        name=name,
        size=int(resource.get("size", 0)),
        md5=resource.get("md5Hash"),
        crc32c=resource.get("crc32c"),
        created=datetime.fromisoformat(created) if created else None,
        generation=int(resource.get("generation", 0)),
        metageneration=int(resource.get("metageneration", 0)),
        on_hold=bool(resource.get("temporaryHold") or resource.get("eventBasedHold")),
    )
