from __future__ import annotations

import threading
from collections import deque
from queue import Queue

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_trainer.agreement import Answer, Decision, Leader, Outgoing, Participant, Proposal


class Host:
    """A training loop in small turns. Each arrival runs on a thread of its own until it returns or has to wait."""

    def __init__(self, last: int) -> None:
        self.participant = Participant()
        self.participant.begin(0, last)
        self.last = last
        self.step = 0
        self.saved: list[tuple[str, int]] = []
        self.inbox: deque[Outgoing] = deque()
        self.blocked = False
        self._turns: Queue[str] = Queue()

    def train(self) -> None:
        """One step, unless the host is blocked or done."""
        if not self.blocked and self.step < self.last:
            self.step += 1
            threading.Thread(target=self._arrive, daemon=True).start()
            self.blocked = self._turns.get(timeout=5) == "waits"

    def receive(self, message: Outgoing) -> Answer | None:
        if isinstance(message, Proposal):
            return self.participant.propose(message)
        self.participant.decide(message)
        if self.blocked:
            self.blocked = self._turns.get(timeout=5) == "waits"
        return None

    def _arrive(self) -> None:
        requests = self.participant.arrive(self.step, lambda request: self._turns.put("waits"))
        self.saved.extend((request, self.step) for request in requests)
        self._turns.put("goes on")


@settings(max_examples=150, deadline=None)
@given(
    hosts=st.integers(1, 4),
    last=st.integers(5, 40),
    ask_at=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    order=st.lists(st.integers(0, 7), min_size=20, max_size=300),
)
def test_all_hosts_save_at_one_step_or_none_does(hosts: int, last: int, ask_at: list[int], order: list[int]) -> None:
    leader = Leader(hosts)
    group = [Host(last) for _ in range(hosts)]
    to_leader: deque[tuple[int, Answer]] = deque()

    def send(messages: list[Outgoing]) -> None:
        for message in messages:
            for host in group:
                host.inbox.append(message)

    def deliver(number: int) -> None:
        host = group[number]
        if host.inbox:
            answer = host.receive(host.inbox.popleft())
            if answer is not None:
                to_leader.append((number, answer))

    for turn, choice in enumerate(order):
        for request, when in enumerate(ask_at):
            if turn == when:
                send(leader.request(f"request {request}"))
        number = choice % hosts
        if choice < 4:
            group[number].train()
        else:
            deliver(number)
            if to_leader:
                send(leader.answer(*to_leader.popleft()))
    for _ in range(10_000):
        if all(host.step == last and not host.blocked and not host.inbox for host in group) and not to_leader:
            break
        for number, host in enumerate(group):
            host.train()
            deliver(number)
        while to_leader:
            send(leader.answer(*to_leader.popleft()))
    else:
        raise AssertionError("the hosts never came to their last step")
    saves = {tuple(host.saved) for host in group}
    assert len(saves) == 1, saves
    requests = [request for request, _ in next(iter(saves))]
    assert len(set(requests)) == len(requests)


def test_a_second_agreement_does_not_displace_the_first() -> None:
    participant = Participant()
    participant.propose(Proposal("one", 1, 5))
    participant.decide(Decision("one", 1, True))
    participant.propose(Proposal("two", 1, 7))
    participant.decide(Decision("two", 1, True))
    assert [participant.arrive(step) for step in (4, 5, 6, 7, 8)] == [(), ("one",), (), ("two",), ()]


def test_a_request_is_answered_once() -> None:
    leader = Leader(1)
    (proposal,) = leader.request("one")
    assert isinstance(proposal, Proposal)
    assert leader.request("one") == []
    assert leader.answer(0, Answer("one", 1, True, 0)) == [Decision("one", 1, True)]
    assert leader.request("one") == []


def test_a_refused_round_is_repeated_further_ahead() -> None:
    leader = Leader(2)
    leader.request("one")
    assert leader.answer(0, Answer("one", 1, True, 0)) == []
    abort, again = leader.answer(1, Answer("one", 1, False, 7))
    assert abort == Decision("one", 1, False)
    assert isinstance(again, Proposal)
    assert again.step > 7
    assert leader.answer(0, Answer("one", 1, True, 0)) == [], "late answers of the aborted round do not count"


def test_a_host_that_ends_first_drops_the_request() -> None:
    participant = Participant()
    participant.begin(9, 10)
    answer = participant.propose(Proposal("one", 1, 11))
    assert (answer.promised, answer.ending) == (False, True)
    leader = Leader(1)
    leader.request("one")
    assert leader.answer(0, Answer("one", 1, False, 9, ending=True)) == [Decision("one", 1, False)]


def test_requests_wait_for_each_other() -> None:
    leader = Leader(1)
    leader.request("one")
    assert leader.request("two") == []
    decision, proposal = leader.answer(0, Answer("one", 1, True, 3))
    assert decision == Decision("one", 1, True)
    assert isinstance(proposal, Proposal)
    assert proposal.request == "two"
