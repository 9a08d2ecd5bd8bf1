"""``join()``: from a process that has just started to a run that may train, and from there to the process's end."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from everstep.checkpoints.completeness import Shape
from everstep_trainer import distributed, errors, guard, history, judging, save_requests, signals
from everstep_trainer.agreement import Participant
from everstep_trainer.bucket import Bucket
from everstep_trainer.ending import Ending
from everstep_trainer.exit_codes import ExitCode, name_of
from everstep_trainer.guard import Offer, Start
from everstep_trainer.handshake import Handshake, InitInfo
from everstep_trainer.peers import Hub, Link
from everstep_trainer.replicator_config import ReplicatorConfig, peers_of
from everstep_trainer.reports import Reports
from everstep_trainer.run import Attempt, Run
from everstep_trainer.run_record import RunRecord
from everstep_trainer.settings import Settings
from everstep_trainer.waiting import Deadline

logger = logging.getLogger(__name__)

HEARD_SECONDS = 5.0
"""How long rank 0 waits for all hosts to hear that the start is refused."""


def join() -> Joining:
    """Join the run's attempt: ``with everstep_trainer.join() as run:``.

    The process ends when the block does, by ``os._exit`` with one of the exit codes, and never goes on after it.
    """
    return Joining()


class Joining:
    """The context manager behind ``join()``."""

    def __init__(self) -> None:
        self._ending: Ending | None = None
        self._hub: Hub | None = None
        self._link: Link | None = None
        self._joined = False

    def __enter__(self) -> Run:
        _log_to_stderr()
        try:
            run = self._join(Settings.from_environment(os.environ))
        except BaseException as error:
            self._fail(error)
        self._joined = True
        return run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            try:
                self._finish()
            except BaseException as late:
                self._fail(late)
        self._fail(error)

    def _join(self, settings: Settings) -> Run:
        deadline = Deadline(settings.handshake_seconds)
        bucket = Bucket(settings.folder.bucket)
        reports = Reports(bucket, settings)
        ending = self._ending = Ending(reports)
        signals.on_sigterm(lambda: ending.leave(ExitCode.STOPPED_ON_REQUEST, "SIGTERM"))
        signals.delay_abort()
        reports.start()
        reading = _Background(lambda: _read_record(bucket, settings), then=_import_frameworks)
        handshake = Handshake(settings.directory, settings.run, deadline)
        info = handshake.init_info()
        logger.info("node rank %d of %d, coordinator %s", info.rank, settings.nodes, info.coordinator)
        config = _replicator_config(settings, info)
        record = reading.result()
        # Before this attempt reports: its own first report replaces what the last attempt left.
        status = history.read_status(bucket, settings.folder) if info.rank == 0 else None
        reports.update(urgent=True, rank=info.rank, lineage=record.lineage, **guard.carried_over(record, status))
        record.check(settings, settings.folder.url(settings.folder.run_record))
        handshake.hand_over(config)
        coordination = distributed.initialize(info, settings.nodes, deadline)
        participant = Participant()
        link = self._connect(coordination, info, settings, deadline, participant)
        point = handshake.restore_point()
        logger.info("the replicator offers step %s (%s) after %.2f s", point.step, point.tier, deadline.elapsed)
        offer = Offer(point.step, point.backup)
        start = _agree_on_start(coordination, settings, bucket, record, offer, status, deadline)
        from everstep_trainer import orbax_store

        rank_by_process = tuple(orbax_store.prepare())
        reports.phase_took("handshake", deadline.elapsed)
        if settings.pod_info is not None:
            save_requests.watch(settings.pod_info, link.request)
        return Run(
            Attempt(
                settings=settings,
                rank=info.rank,
                rank_by_process=rank_by_process,
                start=start,
                point=point,
                coordination=coordination,
                participant=participant,
                link=link,
                bucket=bucket,
                reports=reports,
            )
        )

    def _connect(
        self,
        coordination: distributed.Coordination,
        info: InitInfo,
        settings: Settings,
        deadline: Deadline,
        participant: Participant,
    ) -> Link:
        def open_hub() -> dict[str, Any]:
            token = distributed.new_token()
            self._hub = Hub(info.coordinator_host, settings.nodes, token)
            return {"address": self._hub.address, "token": token}

        assert self._ending is not None
        hub = coordination.broadcast("hub", open_hub, seconds=deadline.remaining)
        try:
            self._link = Link(
                hub["address"], info.rank, hub["token"], participant=participant, on_lost=self._ending.peer_lost
            )
        except OSError as error:
            raise errors.PeerLost(f"node rank 0 can't be reached at {hub['address']}: {error}") from error
        return self._link

    def _finish(self) -> NoReturn:
        """All hosts are done: rank 0, which carries the coordinator, is the last to go."""
        assert self._ending is not None and self._link is not None
        self._link.finish()
        self._link.close()
        hub = self._hub
        self._ending.leave(ExitCode.DONE, "done", after_report=hub.wait_closed if hub is not None else None)

    def _fail(self, error: BaseException | None) -> NoReturn:
        """End the process for an error, once it is clear whether it is this process's own."""
        if not isinstance(error, errors.TrainerError):
            traceback.print_exception(error)
        code, reason = judging.judge(error, self._ending, joined=self._joined)
        if self._ending is None:
            logger.error("ending with %d (%s): %s", code, name_of(code), reason)
            os._exit(code)
        if code == ExitCode.PEER_LOST:
            self._ending.peer_lost(reason)
            threading.Event().wait()
        if self._link is not None:
            self._link.ending(f"{reason} (exit code {code})")
        self._ending.leave(code, reason)


class _Background:
    """A call on a thread of its own, and something else to do there once its result can be had."""

    def __init__(self, call: Callable[[], RunRecord], *, then: Callable[[], None]) -> None:
        self._call = call
        self._then = then
        self._result: RunRecord | BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._work, name="everstep-run-record", daemon=True).start()

    def result(self) -> RunRecord:
        self._done.wait()
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result

    def _work(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._result = error
        self._done.set()
        self._then()


def _import_frameworks() -> None:
    """Import what joining needs while the rank file is waited for; an import that fails will be met again."""
    with contextlib.suppress(ImportError):
        importlib.import_module("jax")
        importlib.import_module("orbax.checkpoint")


def _read_record(bucket: Bucket, settings: Settings) -> RunRecord:
    path = settings.folder.run_record
    stored = bucket.read(path)
    if stored is None:
        logger.warning("%s is not there: a run with unknown history", settings.folder.url(path))
        return RunRecord()
    return RunRecord.parse(stored.content, settings.folder.url(path))


def _replicator_config(settings: Settings, info: InitInfo) -> ReplicatorConfig:
    if info.rank >= settings.nodes:
        raise errors.ConfigurationError(
            f"the rank server gave rank {info.rank}, but the run has {settings.nodes} nodes: EVERSTEP_SLICES and "
            "EVERSTEP_NODES_PER_SLICE must match the JobSet's replicas and parallelism"
        )
    return ReplicatorConfig(
        job_name=settings.run,
        framework=settings.framework,
        node_rank=info.rank,
        nodes=settings.nodes,
        peer_ranks=peers_of(info.rank, slices=settings.slices, nodes_per_slice=settings.nodes_per_slice),
        backup_interval_minutes=settings.backup_every_minutes,
        data_parallelism=settings.data_parallelism,
        workers_per_node=settings.workers_per_node,
    )


def _agree_on_start(
    coordination: distributed.Coordination,
    settings: Settings,
    bucket: Bucket,
    record: RunRecord,
    offer: Offer,
    status: dict[str, Any] | None,
    deadline: Deadline,
) -> Start:
    """Rank 0 compares all offers, looks into the bucket, decides, and everybody hears the same."""
    offers = coordination.gather("offer", {"step": offer.step}, seconds=deadline.remaining)

    def decide() -> dict[str, Any]:
        steps = [given["step"] for given in offers]
        if len(set(steps)) != 1:
            return {"error": "HandshakeFailed", "text": f"the replicators offer different steps by rank: {steps}"}
        shape = Shape(settings.nodes, settings.workers_per_node, settings.data_parallelism)
        try:
            found = history.read_history(bucket, settings.folder, shape, record, offer, status)
            start = guard.decide(record, offer, found)
        except errors.TrainerError as error:
            return {"error": type(error).__name__, "text": str(error)}
        return {"source": start.source, "step": start.step, "reason": start.reason}

    decision = coordination.broadcast("start", decide, seconds=deadline.remaining)
    if "error" in decision:
        # Rank 0 carries the store that the others read the decision from, so it goes last.
        coordination.gather("heard", {}, seconds=HEARD_SECONDS)
        raise getattr(errors, decision["error"])(decision["text"])
    return Start(decision["source"], decision["step"], decision["reason"])


def _log_to_stderr() -> None:
    """Show this library's log where the training code has set up no logging of its own."""
    own = logging.getLogger("everstep_trainer")
    if own.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s everstep: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    own.addHandler(handler)
    own.propagate = False
    own.setLevel(logging.INFO)
