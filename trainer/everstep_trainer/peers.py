"""Connections between the processes of an attempt: who is alive, who is done, and what all agree on.

Node rank 0 runs a hub; every process, rank 0 too, holds one TCP connection to it. When a process dies its
kernel closes the connection, so the others know within milliseconds, while a collective would hang for
minutes. A node that vanishes without a word is noticed by silence. The token keeps other processes of the
cluster out.

One JSON object per line, the key ``kind`` first.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from everstep_trainer.agreement import Answer, Decision, Leader, Outgoing, Participant, Proposal

logger = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
"""Between two signs of life."""
SILENCE_SECONDS = 20.0
"""Without any sign of life a peer counts as lost. Long, because a compilation may starve the thread that
sends them.
"""
CLOSING_SECONDS = 10.0
"""How long rank 0, whose end aborts the others, lets them leave first."""

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class LineReader:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[Message]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines if line]


@dataclass
class _Peer:
    connection: socket.socket
    reader: LineReader = field(default_factory=LineReader)
    rank: int | None = None
    heard: float = field(default_factory=time.monotonic)
    done: bool = False
    cause: str | None = None


class Hub:
    """The hub of an attempt, on node rank 0, in one thread."""

    def __init__(self, host: str, size: int, token: str) -> None:
        self._size = size
        self._token = token
        self._leader = Leader(size)
        self._peers: dict[socket.socket, _Peer] = {}
        self._lost = False
        self._ended = False
        self._closed = threading.Event()
        self._server = socket.create_server((host, 0), backlog=max(128, size))
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="everstep-hub", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.getsockname()[:2]
        return f"{host}:{port}"

    def wait_closed(self, timeout: float = CLOSING_SECONDS) -> bool:
        """Wait until all other processes have closed their connections after the end."""
        return self._closed.wait(timeout)

    def stop(self) -> None:
        """Close everything at once, as the end of the process does."""
        self._closed.set()
        self._thread.join()

    def _serve(self) -> None:
        last_sent = time.monotonic()
        while not self._closed.is_set():
            for key, _ in self._selector.select(timeout=ALIVE_SECONDS / 2):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._receive(self._peers[key.fileobj])  # type: ignore[index]
            now = time.monotonic()
            if now - last_sent >= ALIVE_SECONDS:
                last_sent = now
                self._send_all({"kind": "alive"})
            for peer in list(self._peers.values()):
                if now - peer.heard > SILENCE_SECONDS:
                    self._drop(peer, f"silent for {SILENCE_SECONDS:g} s")
        for connection in (*self._peers, self._server):
            connection.close()

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(ALIVE_SECONDS)
        self._peers[connection] = _Peer(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, peer: _Peer) -> None:
        try:
            received = peer.connection.recv(65536)
            messages = peer.reader.feed(received)
        except (OSError, ValueError) as error:
            self._drop(peer, str(error))
            return
        if not received:
            self._drop(peer, "its process ended")
            return
        peer.heard = time.monotonic()
        try:
            for message in messages:
                self._handle(peer, message)
        except (KeyError, TypeError, ValueError) as error:
            self._drop(peer, f"it sent a message that can't be read: {error!r}")

    def _handle(self, peer: _Peer, message: Message) -> None:
        kind = message.get("kind")
        if peer.rank is None:
            if kind == "hello" and message.get("token") == self._token:
                peer.rank = int(message["rank"])
            else:
                self._drop(peer, "it did not know the token")
        elif kind == "request":
            self._send_outgoing(self._leader.request(str(message["request"])))
        elif kind == "answer":
            self._send_outgoing(self._leader.answer(peer.rank, Answer(**message["answer"])))
        elif kind == "ending":
            peer.cause = str(message["cause"])
        elif kind == "done":
            peer.done = True
            if sum(other.done for other in self._peers.values()) == self._size:
                self._ended = True
                self._send_all({"kind": "end"})

    def _send_outgoing(self, outgoing: list[Outgoing]) -> None:
        for item in outgoing:
            name = "propose" if isinstance(item, Proposal) else "decide"
            self._send_all({"kind": name, name: asdict(item)})

    def _send_all(self, message: Message) -> None:
        for peer in list(self._peers.values()):
            if peer.rank is None:
                continue
            try:
                peer.connection.sendall(encode(message))
            except OSError as error:
                self._drop(peer, str(error))

    def _drop(self, peer: _Peer, why: str) -> None:
        if self._peers.pop(peer.connection, None) is None:
            return
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if self._ended:
            if all(other.rank == 0 for other in self._peers.values()):
                self._closed.set()
        elif peer.rank is not None and not self._lost:
            self._lost = True
            self._send_all({"kind": "lost", "rank": peer.rank, "why": peer.cause or why})


class Link:
    """One process's connection to the hub. Callbacks run on the link's thread."""

    def __init__(
        self, address: str, rank: int, token: str, *, participant: Participant, on_lost: Callable[[str], None]
    ) -> None:
        self._participant = participant
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._leaving = False
        self._sending = threading.Lock()
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=SILENCE_SECONDS)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.settimeout(ALIVE_SECONDS)
        self._send({"kind": "hello", "rank": rank, "token": token})
        self._thread = threading.Thread(target=self._listen, name="everstep-link", daemon=True)
        self._thread.start()

    def request(self, identifier: str) -> None:
        """Ask for a save at a step that all hosts agree on."""
        self._send({"kind": "request", "request": identifier})

    def ending(self, cause: str) -> None:
        """Tell the others why this process is about to end on its own."""
        self._send({"kind": "ending", "cause": cause})

    def finish(self) -> None:
        """Say that this process is done and wait until all are. A lost peer ends the process instead."""
        self._send({"kind": "done"})
        self._ended.wait()

    def close(self) -> None:
        self._leaving = True
        self._connection.close()

    def _listen(self) -> None:
        reader = LineReader()
        heard = sent = time.monotonic()
        while not self._leaving:
            now = time.monotonic()
            if now - sent >= ALIVE_SECONDS:
                sent = now
                self._send({"kind": "alive"})
            try:
                received = self._connection.recv(65536)
            except TimeoutError:
                if now - heard > SILENCE_SECONDS:
                    return self._lose(f"node rank 0 has been silent for {SILENCE_SECONDS:g} s")
                continue
            except OSError as error:
                return self._lose(f"the connection to node rank 0 broke: {error}")
            if not received:
                return self._lose("the process of node rank 0 ended")
            heard = time.monotonic()
            try:
                for message in reader.feed(received):
                    self._handle(message)
            except (KeyError, TypeError, ValueError) as error:
                return self._lose(f"node rank 0 sent a message that can't be read: {error!r}")
        return None

    def _handle(self, message: Message) -> None:
        kind = message.get("kind")
        if kind == "propose":
            answer = self._participant.propose(Proposal(**message["propose"]))
            self._send({"kind": "answer", "answer": asdict(answer)})
        elif kind == "decide":
            self._participant.decide(Decision(**message["decide"]))
        elif kind == "lost":
            self._lose(f"node rank {message['rank']} is gone: {message['why']}")
        elif kind == "end":
            self._ended.set()

    def _lose(self, why: str) -> None:
        if not self._ended.is_set() and not self._leaving:
            self._on_lost(why)

    def _send(self, message: Message) -> None:
        try:
            with self._sending:
                self._connection.sendall(encode(message))
        except OSError as error:
            logger.debug("not sent to the hub: %s", error)
