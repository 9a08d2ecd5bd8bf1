"""Signals: SIGTERM ends the process at once, even while the main thread is stuck in a collective; SIGABRT waits.

A Python signal handler would only run once the main thread is back in Python, which may be never. The C part of
Python's signal handling writes the signal's number into a socket from inside the signal handler, and a thread of its
own reads it there.

JAX's client aborts the process as soon as it loses the coordinator, before anybody could report or choose an exit code,
and offers no working way to be told instead. So the aborting thread is made to sleep for some seconds first, in which
the thread that noticed the loss ends the process properly.
"""

from __future__ import annotations

import ctypes
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


def delay_abort() -> None:
    """Let six seconds pass between a call of abort() and its effect, unless something else handles SIGABRT already.

    The handler is the C library's own ``sleep``, which signal handlers may call; it gets the signal's number, 6, as its
    argument. No Python runs in it, so it works whoever holds the interpreter.
    """
    if signal.getsignal(signal.SIGABRT) is not signal.SIG_DFL:
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))


def _nothing(number: int, frame: object) -> None:
    """Only a Python handler makes the interpreter write to the socket."""


def _listen(reader: socket.socket, writer: socket.socket, call: Callable[[], object]) -> None:
    # The writer is kept alive by this frame: closing it would close the wake-up descriptor.
    assert writer.fileno() >= 0
    while received := reader.recv(64):
        if signal.SIGTERM in received:
            call()
