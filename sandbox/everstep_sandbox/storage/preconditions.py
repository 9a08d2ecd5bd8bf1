"""Preconditions on generation and metageneration, as query parameters of a request."""

from __future__ import annotations

from dataclasses import dataclass

from everstep_sandbox.storage import errors
from everstep_sandbox.storage.exchange import Request
from everstep_sandbox.storage.records import StoredObject


@dataclass(frozen=True)
class Preconditions:
    """What must hold of the object that a request touches; None asks nothing. Generation 0 means "is not there"."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None

    @classmethod
    def of(cls, request: Request, *, source: bool = False) -> Preconditions:
        """The request's conditions on its target, or (`source`) on the object that it copies from."""
        word = "ifSource" if source else "if"
        return cls(
            request.number(f"{word}GenerationMatch"),
            request.number(f"{word}GenerationNotMatch"),
            request.number(f"{word}MetagenerationMatch"),
            request.number(f"{word}MetagenerationNotMatch"),
        )

    def check(self, current: StoredObject | None, *, reading: bool = False) -> None:
        """Raises StorageError 412, or 304 for a read of exactly what the reader has already."""
        generation = current.generation if current else 0
        metageneration = current.metageneration if current else 0
        if self.generation is not None and self.generation != generation:
            raise errors.precondition_failed()
        if self.metageneration is not None and self.metageneration != metageneration:
            raise errors.precondition_failed()
        unwanted = (
            self.generation_not == generation,
            current is not None and self.metageneration_not == metageneration,
        )
        if any(unwanted):
            raise errors.not_modified() if reading else errors.precondition_failed()
