"""What is judged, and the verdicts: each item is one thing that Everstep relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Judged(StrEnum):
    """What came of an item."""

    HOLDS = "holds"
    DIFFERS = "differs"
    UNKNOWN = "not judged"


@dataclass(frozen=True)
class Verdict:
    """One item's outcome: what it says, and what was seen."""

    item: str
    claim: str
    judged: Judged
    seen: str

    def __str__(self) -> str:
        return f"{self.judged.value:10} {self.item}: {self.claim} -- {self.seen}"

    def as_dict(self) -> dict[str, str]:
        """Return plain strings, for JSON."""
        return {"item": self.item, "claim": self.claim, "judged": str(self.judged), "seen": self.seen}


class NotJudged(Exception):
    """An item can't be judged here; the text says why."""


@dataclass
class Record:
    """Verdicts as they come; each is told at once."""

    tell: Callable[[str], None]
    verdicts: list[Verdict] = field(default_factory=list)

    def judge(self, item: str, claim: str, holds: bool, seen: Any) -> bool:
        """Note whether an item holds, with what was seen; return whether it does."""
        self._note(Verdict(item, claim, Judged.HOLDS if holds else Judged.DIFFERS, str(seen)))
        return holds

    def unknown(self, item: str, claim: str, why: str) -> None:
        """Note that an item could not be judged."""
        self._note(Verdict(item, claim, Judged.UNKNOWN, why))

    @contextmanager
    def item(self, item: str, claim: str) -> Iterator[Sighting]:
        """Judge an item by what the block does: it must say what it saw; what it raises is noted, not raised.

        A failed expectation (AssertionError) means that the item differs, NotJudged that it can't be judged here;
        an error of a client too, since an answer is what was asked for.
        """
        from everstep.clients.errors import RemoteError

        sighting = Sighting()
        try:
            yield sighting
        except NotJudged as why:
            self.unknown(item, claim, str(why))
        except AssertionError as difference:
            self.judge(item, claim, False, difference or sighting.text or "otherwise")
        except RemoteError as failure:
            self.judge(item, claim, False, failure.message)
        except (LookupError, TypeError, ValueError) as surprise:
            # An answer that does not look as it should.
            self.judge(item, claim, False, f"an answer of another form: {type(surprise).__name__} {surprise}")
        else:
            self.judge(item, claim, True, sighting.text or "as expected")

    def differing(self) -> list[Verdict]:
        """Return the items that don't hold."""
        return [verdict for verdict in self.verdicts if verdict.judged is Judged.DIFFERS]

    def _note(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.tell(str(verdict))


@dataclass
class Sighting:
    """What the block of an item saw, in words."""

    text: str = ""

    def saw(self, text: Any) -> None:
        """Keep it for the verdict."""
        self.text = str(text)

    def expect(self, holds: bool, seen: Any) -> None:
        """Keep what was seen; the item differs where it does not hold."""
        self.saw(seen)
        if not holds:
            raise AssertionError(str(seen))


def tally(verdicts: Iterable[Verdict]) -> str:
    """Return how many items hold, differ and were not judged."""
    verdicts = list(verdicts)
    counts = {one: sum(1 for verdict in verdicts if verdict.judged is one) for one in Judged}
    return f"{counts[Judged.HOLDS]} hold, {counts[Judged.DIFFERS]} differ, {counts[Judged.UNKNOWN]} were not judged"
