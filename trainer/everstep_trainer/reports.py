"""Reports of a process, written to the bucket from a thread of their own: training never waits for them.

Each node writes one object per attempt; node rank 0 also writes the run's ``status.json``, fenced so that a process of
an older attempt that is still alive never overwrites what a newer one wrote.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from everstep_trainer.bucket import Bucket, GenerationConflict
from everstep_trainer.exit_codes import name_of
from everstep_trainer.settings import Settings

logger = logging.getLogger(__name__)

VERSION = 1
INTERVAL_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
"""Between tries while the bucket can't be reached."""
LAST_TRIES = 3
LAST_PAUSE_SECONDS = 0.5
"""Tries of the last report, and the pause between them."""


def now_text() -> str:
    """The time now, RFC 3339 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Progress:
    """What there is to report. Written by the training thread, read by the report thread, under the report's lock."""

    rank: int | None = None
    lineage: str = ""
    phase: str = "starting"
    step: int | None = None
    final_step: int | None = None
    loss: Any = None
    """A number or an array that may not be computed yet."""
    restored_step: int | None = None
    restored_tier: str | None = None
    restored_backup: str | None = None
    last_local_save: int | None = None
    last_durable_save: int | None = None
    step_seconds: float | None = None
    save_answered: str | None = None
    save_step: int | None = None
    phases: dict[str, float] = field(default_factory=dict)
    first_step_at: str | None = None
    ended: dict[str, Any] | None = None
    replicator_failed: str | None = None
    final: dict[str, Any] = field(default_factory=dict)


class Reports:
    """The report thread of one process.

    :param seconds: between two writes while nothing but the step changes
    """

    def __init__(self, bucket: Bucket, settings: Settings, *, seconds: float = INTERVAL_SECONDS) -> None:
        self._bucket = bucket
        self._settings = settings
        self._seconds = seconds
        self._progress = Progress(final_step=settings.final_step)
        self._changed = threading.Condition()
        self._dirty = self._urgent = self._stopped = False
        self._status_generation: int | None = None
        self._fenced = False
        self._known_loss: float | None = None
        self._thread = threading.Thread(target=self._work, name="everstep-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, *, urgent: bool = False, **fields: Any) -> None:
        """Change fields of the progress. ``urgent``: write now rather than at the next interval."""
        with self._changed:
            for name, value in fields.items():
                setattr(self._progress, name, value)
            self._dirty = True
            if urgent:
                self._urgent = True
                self._changed.notify()

    def phase_took(self, name: str, seconds: float) -> None:
        with self._changed:
            self._progress.phases[name] = round(seconds, 3)
            self._dirty = True

    def finish(self, code: int, reason: str, *, phase: str, within: float) -> bool:
        """Write the last report; returns whether it was written within so many seconds."""
        ended = {"code": int(code), "name": name_of(code), "reason": reason, "at": now_text()}
        with self._changed:
            self._progress.ended = ended
            self._progress.phase = phase
            self._dirty = self._urgent = self._stopped = True
            self._changed.notify()
        if not self._thread.is_alive():
            return False
        self._thread.join(within)
        return not self._thread.is_alive()

    def _work(self) -> None:
        pause = self._seconds
        tries_left = LAST_TRIES
        while tries_left > 0:
            with self._changed:
                self._changed.wait_for(lambda: self._urgent, timeout=pause)
                stopped = self._stopped
                due, self._dirty, self._urgent = self._dirty, False, False
                ready = self._progress.rank is not None
            try:
                if due and ready:
                    self._write()
                pause = self._seconds
                if stopped:
                    return
            except Exception as error:
                logger.warning("report not written: %s", error)
                pause = LAST_PAUSE_SECONDS if stopped else min(2 * pause, LONGEST_PAUSE_SECONDS)
                tries_left -= stopped
                with self._changed:
                    self._dirty = True

    def _write(self) -> None:
        settings = self._settings
        with self._changed:
            loss = self._progress.loss
        self._known_loss = _computed(loss, self._known_loss)
        with self._changed:
            rank = self._progress.rank
            assert rank is not None
            node, status = self._node_report(), self._status()
        path = settings.folder.attempt_node(settings.launch, settings.restart, rank)
        self._bucket.write(path, _json(node))
        if rank == 0 and not self._fenced:
            self._write_status(status)

    def _write_status(self, status: dict[str, Any]) -> None:
        path = self._settings.folder.status
        for _ in range(3):
            if self._status_generation is None:
                stored = self._bucket.read(path)
                self._status_generation = 0 if stored is None else stored.generation
                if stored is not None and _attempt_of(stored.content) > (self._settings.launch, self._settings.restart):
                    self._fenced = True
                    logger.warning("%s is of a newer attempt: this one reports no status", path)
                    return
            try:
                self._status_generation = self._bucket.write(path, _json(status), if_generation=self._status_generation)
                return
            except GenerationConflict:
                self._status_generation = None
        raise GenerationConflict(f"{path} keeps changing")

    def _identity(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "version": VERSION,
            "run": settings.run,
            "lineage": self._progress.lineage,
            "launch": settings.launch,
            "restart": settings.restart,
        }

    def _status(self) -> dict[str, Any]:
        progress = self._progress
        fields = (
            "step", "final_step", "phase", "restored_step", "restored_tier", "last_local_save", "last_durable_save",
            "step_seconds", "save_answered", "save_step",
        )  # fmt: skip
        return {
            **self._identity(),
            **{name: getattr(progress, name) for name in fields},
            "loss": self._known_loss,
            "updated": now_text(),
            **progress.final,
        }

    def _node_report(self) -> dict[str, Any]:
        progress, settings = self._progress, self._settings
        return {
            **self._identity(),
            "rank": progress.rank,
            "slice": settings.slice_index,
            "node": settings.node,
            "pod": settings.pod,
            "restored_step": progress.restored_step,
            "restored_tier": progress.restored_tier,
            "restored_backup": progress.restored_backup,
            "phases": dict(progress.phases),
            "first_step_at": progress.first_step_at,
            "last_step": progress.step,
            "replicator_failed": progress.replicator_failed,
            "ended": progress.ended,
            "updated": now_text(),
        }


def _attempt_of(content: bytes) -> tuple[int, int]:
    """Launch and restart of a stored status; lower than any if it is unreadable."""
    try:
        status = json.loads(content)
        return int(status["launch"]), int(status["restart"])
    except (ValueError, KeyError, TypeError):
        return -1, -1


def _computed(loss: Any, known: float | None) -> float | None:
    """The loss as a number, if it is computed; else the last known one. Never waits for a device."""
    if loss is None:
        return known
    is_ready = getattr(loss, "is_ready", None)
    try:
        if is_ready is not None and not is_ready():
            return known
        local = getattr(loss, "addressable_data", None)
        return float(loss if local is None else local(0))
    except Exception:
        # A donated or failed array; the training thread meets the same error where it matters.
        return known


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
