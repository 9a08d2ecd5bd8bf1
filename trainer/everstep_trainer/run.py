"""What the training code holds while it trains: restore, steps, save, report."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everstep_trainer import checkpoint_directory, durable_saves, orbax_store, replication, storage_failures
from everstep_trainer.agreement import Participant
from everstep_trainer.bucket import Bucket
from everstep_trainer.distributed import Coordination
from everstep_trainer.errors import ConfigurationError
from everstep_trainer.guard import Start
from everstep_trainer.peers import Link
from everstep_trainer.reports import Reports, now_text
from everstep_trainer.restore_point import RestorePoint
from everstep_trainer.settings import Settings

logger = logging.getLogger(__name__)

AGREEMENT_SECONDS = 600.0
"""How long hosts wait for rank 0's word during training; a lost peer ends the process long before."""
_STEP_TIME_SMOOTHING = 0.1
_HOURLY = "hourly:"
"""Prefix of requests that the run makes itself."""


@dataclass(frozen=True)
class Attempt:
    """What joining an attempt came to: this process's place in it and its connections."""

    settings: Settings
    rank: int
    rank_by_process: tuple[int, ...]
    start: Start
    point: RestorePoint
    coordination: Coordination
    participant: Participant
    link: Link
    bucket: Bucket
    reports: Reports


class Run:
    """The run, as the training code sees it. Every host makes the same calls in the same order.

    Steps count from 1: step N is the N-th update of the state, and a checkpoint of step N is the state after it.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._settings = attempt.settings
        self._reports = attempt.reports
        self._local = orbax_store.LocalStore(attempt.settings.directory)
        self._durable = orbax_store.DurableStore()
        self._restored = False
        self._last: int | None = None
        self._durable_saves = 0
        self._durable_since = time.monotonic()
        self._step_seconds: float | None = None
        self._loss: Any = None

    @property
    def rank(self) -> int:
        """Node rank of this process, 0 to nodes - 1."""
        return self._attempt.rank

    @property
    def data_parallelism(self) -> int:
        """Over how many groups of nodes state must be replicated: the first axis of the mesh."""
        return self._settings.data_parallelism

    @property
    def restored_step(self) -> int | None:
        """The step that the run starts from; None on a fresh start."""
        return self._attempt.start.step

    def restore(self, abstract_state: Any) -> Any | None:
        """Give back the state of the newest checkpoint that may be restored; None only on a true fresh start.

        :param abstract_state: a tree of jax.ShapeDtypeStruct with shardings, or of arrays that look like the state
        :raises ConfigurationError: if the state is not replicated as the run's data parallelism promises
        """
        attempt, start = self._attempt, self._attempt.start
        like = orbax_store.abstract(abstract_state)
        replication.check(
            like,
            data_parallelism=self._settings.data_parallelism,
            rank_by_process=attempt.rank_by_process,
        )
        self._reports.update(phase="restoring")
        began = time.monotonic()
        state, tier = None, "fresh"
        if start.source == "replicator" and start.step is not None and attempt.point.marker is not None:
            tier = attempt.point.tier
            state = self._local.restore(attempt.point.marker, start.step, like)
        elif start.source == "durable" and start.step is not None:
            tier = "durable"
            with storage_failures.named(f"restoring {self._durable_url(start.step)}"):
                state = self._durable.restore(self._durable_url(start.step), like)
        self._restored = True
        self._reports.phase_took("restore", time.monotonic() - began)
        self._reports.update(
            urgent=True,
            phase="training",
            step=start.step or 0,
            restored_step=start.step,
            restored_tier=tier,
            restored_backup=attempt.point.backup if tier == "backup" else None,
            **self._saved_so_far(tier),
        )
        if state is None:
            logger.info("fresh start: %s", start.reason)
        else:
            logger.info("restored step %s from %s in %.2f s", start.step, tier, time.monotonic() - began)
            self._complete_final_save(tier, state)
        return state

    def steps(self, to: int | None = None) -> Iterator[int]:
        """The steps that are left, from the one after the restored step to ``to`` inclusive (default: final_step)."""
        last = self._settings.final_step if to is None else to
        if last is None:
            raise ConfigurationError("run.steps() needs to=…, since the run has no final_step")
        if not self._restored:
            raise ConfigurationError("run.steps() before run.restore(): the run would start again from nothing")
        if self._settings.final_step not in (None, last):
            logger.warning("steps end at %d, but the run's final_step is %s", last, self._settings.final_step)
        self._last = last
        start = self._attempt.start.step or 0
        self._attempt.participant.begin(start, last)
        self._reports.update(final_step=last)
        began = time.monotonic()
        for step in range(start + 1, last + 1):
            yield step
            first = step == start + 1
            if first and hasattr(self._loss, "block_until_ready"):
                # Steps are only dispatched here. Waiting once tells when the run really goes on again.
                self._loss.block_until_ready()
            now = time.monotonic()
            self._note_step(step, now - began, first=first)
            began = now

    def save(self, step: int, state: Any) -> None:
        """Save if this step is due: to the RAM disk by interval; durably at the end, by the hour and on request."""
        if step < 1:
            raise ValueError(f"step {step} can't be saved: the replicator never restores step 0; steps count from 1")
        self._reports.update(step=step)
        requests = self._attempt.participant.arrive(
            step, lambda waiting: logger.info("step %d: waiting for all hosts to agree on save %s", step, waiting)
        )
        if step % self._settings.local_every_steps == 0:
            with storage_failures.named(f"the save of step {step} to {self._settings.directory}"):
                self._local.save(step, state)
            self._reports.update(last_local_save=step, replicator_failed=self._replicator_failure(step))
        if requests or (step == self._last and self._settings.durable_at_end):
            self._save_durably(step, state)
        asked_from_outside = [request for request in requests if not request.startswith(_HOURLY)]
        if asked_from_outside:
            self._reports.update(urgent=True, save_answered=asked_from_outside[-1], save_step=step)
        self._ask_by_the_hour()

    def report(self, *, loss: Any = None, final: Mapping[str, Any] | None = None) -> None:
        """Report the newest loss (a number or an array; it is not waited for) and, at the end, final results.

        :param final: JSON values that go into the run's status as they are, such as a digest of the weights
        """
        if loss is not None:
            self._loss = loss
            self._reports.update(loss=loss)
        if final is not None:
            json.dumps(final)
            self._reports.update(urgent=True, final=dict(final))

    def _saved_so_far(self, tier: str) -> dict[str, int | None]:
        """What the reports say of saves right after the restore. A fresh start has none, whatever earlier ones had."""
        step = self._attempt.start.step
        if tier == "fresh":
            return {"last_local_save": None, "last_durable_save": None}
        return {"last_durable_save": step} if tier == "durable" else {"last_local_save": step}

    def _note_step(self, step: int, seconds: float, *, first: bool) -> None:
        if first:
            self._reports.phase_took("first_step", seconds)
            self._reports.update(urgent=True, step=step, first_step_at=now_text())
            return
        known = self._step_seconds
        self._step_seconds = seconds if known is None else known + _STEP_TIME_SMOOTHING * (seconds - known)
        self._reports.update(step=step, step_seconds=round(self._step_seconds, 4))

    def _complete_final_save(self, tier: str, state: Any) -> None:
        """Make up for an attempt that died between the last step and its durable save: no step is left to save at."""
        step = self._attempt.start.step
        final = self._settings.final_step
        if step is None or final is None or step < final or tier == "durable":
            return
        if self._settings.durable_at_end:
            self._save_durably(step, state)

    def _save_durably(self, step: int, state: Any) -> None:
        """Save to ``checkpoints/<step>`` unless a complete save is there: that one is never written over."""
        folder, bucket = self._settings.folder, self._attempt.bucket
        self._durable_saves += 1
        began = time.monotonic()
        with storage_failures.named(f"the durable save of step {step}"):
            found = self._attempt.coordination.broadcast(
                f"durable/{self._durable_saves}",
                lambda: {"complete": durable_saves.is_complete_or_cleared(bucket, folder, step)},
                seconds=AGREEMENT_SECONDS,
            )
            if not found["complete"]:
                self._reports.update(urgent=True, phase="saving")
                self._durable.save(self._durable_url(step), state)
                logger.info("saved step %d durably in %.2f s", step, time.monotonic() - began)
        self._durable_since = time.monotonic()
        self._reports.update(urgent=True, phase="training", last_durable_save=step)

    def _ask_by_the_hour(self) -> None:
        hours = self._settings.durable_every_hours
        if self.rank == 0 and hours is not None and time.monotonic() - self._durable_since >= hours * 3600:
            self._durable_since = time.monotonic()
            self._attempt.link.request(_HOURLY + now_text())

    def _replicator_failure(self, saved: int) -> str | None:
        """Why local saves are not kept any more; None if all is well. One that was killed leaves no word of its own."""
        directory = self._settings.directory
        text = (checkpoint_directory.read_text(directory / checkpoint_directory.FAILED) or "").strip()
        waiting = [step for step in checkpoint_directory.untaken_saves(directory) if step < saved]
        if not text and waiting:
            text = f"the save of step {waiting[0]} still lies in {directory}: no replicator takes saves on this node"
        if text:
            logger.error("local saves are not kept any more until the next restart: %s", text)
        return text or None

    def _durable_url(self, step: int) -> str:
        folder = self._settings.folder
        return folder.url(folder.durable_step(step).rstrip("/"))
