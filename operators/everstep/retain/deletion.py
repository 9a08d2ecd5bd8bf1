"""Deleting everything below a prefix, object by object. Pure: steps for a bulk client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import FoundObject, Outcome


@dataclass
class Deleted:
    """How many objects were deleted, and which stayed, and why: by name."""

    objects: int = 0
    bytes: int = 0
    left: dict[str, str] = field(default_factory=dict)


def below(prefix: str) -> bulk.BulkSteps[Deleted]:
    """Delete all objects below a prefix, page by page."""
    done = Deleted()
    token = ""
    while True:
        page = bulk.page((yield [bulk.ObjectsRequest(prefix, token)])[0])
        yield from objects_of({prefix: page.objects}, {prefix: done})
        token = page.token
        if not token:
            return done


def objects_of(found: Mapping[str, Sequence[FoundObject]], done: Mapping[str, Deleted]) -> bulk.BulkSteps[None]:
    """Delete objects of several checkpoints side by side, in the generations in which they were found, and note of
    each what became of its objects.
    """
    batches = [(name, batch) for name, some in found.items() for batch in in_batches(some)]
    if not batches:
        return
    answers = yield [bulk.DeleteObjects(batch) for _, batch in batches]
    for (name, batch), answer in zip(batches, answers, strict=True):
        for each, outcome in zip(batch, bulk.outcomes(answer), strict=True):
            _note(each, outcome, done[name])


def _note(found: FoundObject, outcome: Outcome, done: Deleted) -> None:
    match outcome:
        case Outcome.DONE:
            done.objects += 1
            done.bytes += found.size
        case Outcome.CHANGED:
            done.left[found.name] = "replaced meanwhile"
        case Outcome.REFUSED:
            done.left[found.name] = "the bucket refuses: a hold, a retention policy or a missing permission"


def tree(folder: str) -> bulk.BulkSteps[Deleted]:
    """Delete a folder and all below it: by the service at once, else object by object and folder by folder."""
    if bulk.outcome((yield [bulk.DeleteTree(folder)])[0]) is Outcome.DONE:
        return Deleted()
    done = yield from below(folder)
    if done.left:
        return done
    inner = bulk.folders((yield [bulk.FoldersRequest(folder)])[0])
    by_depth: dict[int, list[str]] = {}
    for each in inner:
        by_depth.setdefault(each.name.count("/"), []).append(each.name)
    for depth in sorted(by_depth, reverse=True):
        yield [bulk.DeleteFolder(name) for name in by_depth[depth]]
    yield [bulk.DeleteFolder(folder)]
    return done


def in_batches(found: Iterable[FoundObject]) -> Iterable[tuple[FoundObject, ...]]:
    """Return objects so many at a time as one request takes."""
    taken = tuple(found)
    for first in range(0, len(taken), bulk.LARGEST_BATCH):
        yield taken[first : first + bulk.LARGEST_BATCH]
