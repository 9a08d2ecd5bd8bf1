from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from everstep_trainer import peers
from everstep_trainer.agreement import Participant
from everstep_trainer.peers import Hub, LineReader, Link, encode


class Process:
    """One process's link and what it was told."""

    def __init__(self, hub: Hub, rank: int, token: str = "secret") -> None:
        self.lost: Queue[str] = Queue()
        self.participant = Participant()
        self.link = Link(hub.address, rank, token, participant=self.participant, on_lost=self.lost.put)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub("127.0.0.1", 3, "secret")
    yield hub
    hub.stop()


@pytest.fixture
def group(hub: Hub) -> Iterator[list[Process]]:
    group = [Process(hub, rank) for rank in range(3)]
    yield group
    for process in group:
        process.link.close()


def test_a_closed_connection_is_told_to_all_others(group: list[Process]) -> None:
    group[2].link.ending("ValueError: bad batch (exit code 70)")
    group[2].link.close()
    for process in group[:2]:
        assert process.lost.get(timeout=2) == "node rank 2 is gone: ValueError: bad batch (exit code 70)"
    assert group[2].lost.empty(), "who leaves by itself has lost nobody"


def test_the_hubs_end_is_a_loss(hub: Hub, group: list[Process]) -> None:
    hub.stop()
    for process in group:
        assert "node rank 0" in process.lost.get(timeout=2)


def test_silence_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(peers, "ALIVE_SECONDS", 0.1)
    hub = Hub("127.0.0.1", 2, "secret")
    speaking = Process(hub, 0)
    import socket

    host, _, port = hub.address.rpartition(":")
    with socket.create_connection((host, int(port))) as silent:
        silent.sendall(encode({"kind": "hello", "rank": 1, "token": "secret"}))
        assert "rank 1 is gone: silent" in speaking.lost.get(timeout=3)
    speaking.link.close()
    hub.stop()


def test_a_stranger_without_the_token_disturbs_nobody(hub: Hub, group: list[Process]) -> None:
    stranger = Process(hub, 1, token="guessed")
    assert stranger.lost.get(timeout=2)
    stranger.link.close()
    assert all(process.lost.empty() for process in group)


def test_rank_zero_leaves_last(hub: Hub, group: list[Process]) -> None:
    threads = [threading.Thread(target=process.link.finish) for process in group]
    for thread in threads[:2]:
        thread.start()
    threads[0].join(0.3)
    assert threads[0].is_alive(), "nobody is done before all are"
    threads[2].start()
    for thread in threads:
        thread.join(2)
        assert not thread.is_alive()
    assert not hub.wait_closed(0.2)
    for process in group[1:]:
        process.link.close()
    group[0].link.close()
    assert hub.wait_closed(2)
    assert all(process.lost.empty() for process in group)


def test_hosts_agree_on_a_step(group: list[Process]) -> None:
    saved: Queue[tuple[str, int]] = Queue()
    stop = threading.Event()

    def train(process: Process) -> None:
        for step in range(1, 100_000):
            for request in process.participant.arrive(step):
                saved.put((request, step))
                return
            stop.wait(0.001)

    threads = [threading.Thread(target=train, args=(process,), daemon=True) for process in group]
    for thread in threads:
        thread.start()
    group[1].link.request("planned")
    found = {saved.get(timeout=10) for _ in group}
    assert len(found) == 1, found
    assert next(iter(found))[0] == "planned"


def test_messages_may_come_in_pieces() -> None:
    reader = LineReader()
    whole = encode({"kind": "alive"}) + encode({"kind": "end"})
    found = [message for byte in whole for message in reader.feed(bytes([byte]))]
    assert found == [{"kind": "alive"}, {"kind": "end"}]
