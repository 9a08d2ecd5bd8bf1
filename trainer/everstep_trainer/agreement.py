"""How all hosts agree on one step to save at, without any of them running past it.

Hosts run ahead of each other, so "save now" can't mean the same step everywhere. The leader proposes a step
that lies ahead; each host either promises, and then blocks when it reaches that step until it hears the
decision, or refuses and says where it is. If all promised the leader says go, else it says abort and proposes
a later step. A host that promised can't pass the step, so a go means the same step everywhere; a host that
refused is never waited for.

Pure state machines: whoever uses them carries the messages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Proposal:
    """One round for one request. ``round`` tells late answers of an aborted round apart."""

    request: str
    round: int
    step: int


@dataclass(frozen=True)
class Answer:
    """A host's answer: a promise, or where it is. ``ending``: it will end before it gets to the step."""

    request: str
    round: int
    promised: bool
    step: int
    ending: bool = False


@dataclass(frozen=True)
class Decision:
    """Ends a round."""

    request: str
    round: int
    go: bool


Outgoing = Proposal | Decision
"""What the leader sends to every host."""


@dataclass
class Leader:
    """Runs one request after the other; each call returns what to send to every host, in order."""

    hosts: int
    _waiting: deque[str] = field(default_factory=deque)
    _seen: set[str] = field(default_factory=set)
    _current: Proposal | None = None
    _answers: dict[int, Answer] = field(default_factory=dict)
    _margin: int = 1
    _known_step: int = 0

    def request(self, identifier: str) -> list[Outgoing]:
        """Ask for a save. A request that was ever made is not made again."""
        if identifier in self._seen:
            return []
        self._seen.add(identifier)
        self._waiting.append(identifier)
        return [] if self._current is not None else self._next_request()

    def answer(self, host: int, answer: Answer) -> list[Outgoing]:
        """Take one host's answer."""
        current = self._current
        if current is None or (answer.request, answer.round) != (current.request, current.round):
            return []
        self._answers[host] = answer
        self._known_step = max(self._known_step, answer.step)
        if len(self._answers) < self.hosts:
            return []
        answers = list(self._answers.values())
        go = all(given.promised for given in answers)
        decision = Decision(current.request, current.round, go)
        if go or any(given.ending for given in answers):
            return [decision, *self._next_request()]
        self._margin *= 2
        return [decision, *self._propose(current.request, current.round + 1)]

    def _next_request(self) -> list[Outgoing]:
        self._current = None
        self._margin = 1
        return list(self._propose(self._waiting.popleft(), 1)) if self._waiting else []

    def _propose(self, request: str, round_: int) -> list[Outgoing]:
        self._answers = {}
        self._current = Proposal(request, round_, self._known_step + self._margin)
        return [self._current]


class Participant:
    """One host's side. Messages come in on a network thread, ``arrive`` is called by the training thread.

    The leader may go on to the next request before this host has come to the step of the last one, so what was agreed
    is kept apart from the promise that is still undecided.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._step = 0
        self._last: int | None = None
        self._promise: Proposal | None = None
        self._agreed: list[Proposal] = []

    def begin(self, step: int, last: int | None) -> None:
        """Say where the host starts and, if known, the last step that it will come to."""
        with self._changed:
            self._step, self._last = step, last

    def propose(self, proposal: Proposal) -> Answer:
        """Promise to block at the proposed step, or refuse because it is passed or never reached."""
        with self._changed:
            ending = self._last is not None and proposal.step > self._last
            promised = self._step < proposal.step and not ending
            if promised:
                self._promise = proposal
            return Answer(proposal.request, proposal.round, promised, self._step, ending)

    def decide(self, decision: Decision) -> None:
        """Take the leader's decision and let the training thread go on."""
        with self._changed:
            promise = self._promise
            if promise is None or (promise.request, promise.round) != (decision.request, decision.round):
                return
            self._promise = None
            if decision.go:
                self._agreed.append(promise)
            self._changed.notify_all()

    def arrive(self, step: int, waiting: Callable[[str], None] | None = None) -> tuple[str, ...]:
        """Called after every step. Returns the requests to save for at this step, in the order of their agreement.

        Blocks while a promise for this step or an earlier one is undecided. ``waiting`` is told the request when it
        has to wait.
        """
        with self._changed:
            self._step = step
            told: Proposal | None = None
            while (promise := self._promise) is not None and step >= promise.step:
                if waiting is not None and promise != told:
                    told = promise
                    waiting(promise.request)
                self._changed.wait()
            due = tuple(agreed.request for agreed in self._agreed if agreed.step <= step)
            self._agreed = [agreed for agreed in self._agreed if agreed.step > step]
            return due
