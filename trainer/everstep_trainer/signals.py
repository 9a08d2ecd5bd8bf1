"""SIGTERM ends the process at once, even while the main thread is stuck in a collective.

A Python signal handler would only run once the main thread is back in Python, which may be never. The C part of
Python's signal handling writes the signal's number into a socket from inside the signal handler, and a thread of its
own reads it there.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


def on_sigterm(call: Callable[[], object]) -> None:
    """Call the function on a thread of its own when SIGTERM arrives. Only the main thread may set this up."""
    if threading.current_thread() is not threading.main_thread():
        logger.warning("not in the main thread: SIGTERM keeps its default effect")
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _nothing)
    threading.Thread(target=_listen, args=(reader, writer, call), name="everstep-sigterm", daemon=True).start()


def _nothing(number: int, frame: object) -> None:
    """Only a Python handler makes the interpreter write to the socket."""


def _listen(reader: socket.socket, writer: socket.socket, call: Callable[[], object]) -> None:
    # The writer is kept alive by this frame: closing it would close the wake-up descriptor.
    assert writer.fileno() >= 0
    while received := reader.recv(64):
        if signal.SIGTERM in received:
            call()
