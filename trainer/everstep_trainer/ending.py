"""The one way in which a training process ends: report, then ``os._exit`` with a code that means something.

Python's ordinary way out would wait: for JAX's shutdown barrier (minutes when a peer is gone) and for threads that are
stuck in collectives. A process that lost a peer waits a moment first, so that the pod with a cause of its own is
recorded as the first failed one; if in that time it turns out to have a cause of its own, that one counts.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from everstep_trainer.exit_codes import UNCLASSIFIED, ExitCode, name_of
from everstep_trainer.reports import Reports

logger = logging.getLogger(__name__)

PEER_LOST_WAIT_SECONDS = 2.0
_PHASES = {
    ExitCode.DONE: "done",
    ExitCode.STOPPED_ON_REQUEST: "stopping",
    ExitCode.PEER_LOST: "stopping",
}
_REPORT_SECONDS = {ExitCode.DONE: 20.0, ExitCode.STOPPED_ON_REQUEST: 0.08, ExitCode.PEER_LOST: 1.5}
_OTHER_REPORT_SECONDS = 5.0


class Ending:
    """Ends the process once, from whichever thread comes first."""

    def __init__(self, reports: Reports, exit_process: Callable[[int], NoReturn] = os._exit) -> None:
        self._reports = reports
        self._exit = exit_process
        self._leaving = threading.Lock()
        self._lost = threading.Event()
        self._lost_why = ""

    def leave(self, code: int, reason: str, *, after_report: Callable[[], object] | None = None) -> NoReturn:
        """Report and end the process. A second caller waits for the end that the first one prepares."""
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()
        if code not in (UNCLASSIFIED, ExitCode.DONE):
            logger.error("ending with %d (%s): %s", code, name_of(code), reason)
        known = ExitCode(code) if code in set(ExitCode) else None
        phase = "failed" if known is None else _PHASES.get(known, "failed")
        within = _OTHER_REPORT_SECONDS if known is None else _REPORT_SECONDS.get(known, _OTHER_REPORT_SECONDS)
        self._reports.finish(code, reason, phase=phase, within=within)
        if after_report is not None:
            after_report()
        self._flush()
        self._exit(int(code))

    def peer_lost(self, why: str) -> None:
        """Note that a peer is gone and end the process soon. Returns at once; may be called more than once."""
        if self._lost.is_set():
            return
        self._lost_why = why
        self._lost.set()
        logger.warning("peer lost: %s", why)
        threading.Thread(target=self._leave_after_peer, name="everstep-peer-lost", daemon=True).start()

    def lost_within(self, seconds: float) -> bool:
        """Whether a peer's loss is known now or becomes known within so many seconds."""
        return self._lost.wait(seconds)

    def _leave_after_peer(self) -> None:
        started = time.monotonic()
        self._reports.update(urgent=True, phase="stopping")
        time.sleep(max(0.0, PEER_LOST_WAIT_SECONDS - (time.monotonic() - started)))
        self.leave(ExitCode.PEER_LOST, self._lost_why)

    @staticmethod
    def _flush() -> None:
        # A handler or stream that blocks must not keep the process alive.
        for stream in (sys.stdout, sys.stderr):
            flusher = threading.Thread(target=stream.flush, daemon=True)
            flusher.start()
            flusher.join(0.2)
