"""Holding a run while its backups are swept: under its lease, or beside a training that lives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType

from everstep.checkpoints.layout import RunFolder
from everstep.clients.errors import RemoteError
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.storage import BucketClient
from everstep.launch.lease import Lease, LeaseHeldError, LeaseKeeper
from everstep.retain.sweep_report import SweepStopped
from everstep.spec.findings import Finding, error, note

RENEW_SECONDS = 120.0

BESIDE = note(
    "the training lives",
    "what its replicator would restore stays in any case",
    remedy="to sweep beside it: --beside-training, or beside_training=True",
)

log = logging.getLogger(__name__)


@dataclass
class HeldRun:
    """Keeps launches, resumptions and other sweeps of a run away while a block runs.

    Normally that is the run's own lease. While its training lives, that is held by whoever launched it: then a sweep
    is refused, or, with `beside_training`, it holds a lease of its own (against other sweeps) and watches that the
    run's does not change: a launch, a resumption or an end of the training ends the sweep. So it does, too, where a
    lease that a training left can't be told from that of one that lives and says nothing.

    :param cluster: where the run's JobSet is; None when it can't be looked into
    :param holder: who sweeps: the same name takes over from a try of its own that died, which then ends by itself
    """

    bucket: BucketClient
    cluster: KubernetesClient | None
    run: str
    holder: str
    purpose: str = "sweep"
    beside_training: bool = False
    clock: Callable[[], float] = time.monotonic
    _keeper: LeaseKeeper = field(init=False)
    _lease: Lease = field(init=False)
    _watched: int | None = None
    _renewed: float = 0.0

    def __enter__(self) -> HeldRun:
        keeper = LeaseKeeper(self.bucket, self.cluster, self.run, self.holder)
        found = keeper.read()
        is_somebody_s = found is not None and found.jobset is not None and found.holder not in (None, self.holder)
        if found is not None and is_somebody_s and not keeper.sees(found) and keeper.binding() is None:
            # Though it binds no more, it stays its training's: without it, the run could be launched a second time.
            return self._hold_beside(found)
        try:
            self._hold(keeper)
        except LeaseHeldError as refused:
            found = keeper.read()
            if found is None or found.jobset is None:
                raise self._not_now(refused) from None
            if not self.beside_training:
                raise self._not_now(refused, BESIDE) from None
            return self._hold_beside(found)
        return self

    def _hold_beside(self, found: Lease) -> HeldRun:
        self._watched = found.generation
        place = f"{RunFolder(self.bucket.name, self.run).records_prefix}retention/lease.json"
        try:
            self._hold(LeaseKeeper(self.bucket, self.cluster, self.run, self.holder, place=place))
        except LeaseHeldError as swept:
            raise self._not_now(swept) from None
        return self

    def _hold(self, keeper: LeaseKeeper) -> None:
        self._lease = keeper.acquire(self.purpose)
        self._keeper, self._renewed = keeper, self.clock()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            found = self._keeper.read()
            if found is not None and found.generation == self._lease.generation:
                self._keeper.release()
        except RemoteError as lost:
            # It ends by itself within minutes, and what went wrong before is worth more than this.
            log.warning("The lease of run %s was not given back: %s", self.run, lost.message)

    def _not_now(self, refused: LeaseHeldError, *more: Finding) -> LeaseHeldError:
        """Say it for a sweep: what a launch is advised would not help here."""
        expected = f"a free lease: no {self.purpose} while somebody else launches, resumes, sweeps or trains the run"
        remedy = "start it again once that is over; one that died gives its lease up after 10 minutes"
        findings = [replace(each, expected=expected, remedy=remedy) for each in refused.findings]
        return LeaseHeldError(refused.title, [*findings, *more])

    def fence(self) -> int:
        """Return the generation that the run's lease must have."""
        return self._lease.generation if self._watched is None else self._watched

    def renew(self) -> None:
        """Hold it for longer, when it is time. Raises SweepStopped when somebody took it over."""
        if self.clock() - self._renewed < RENEW_SECONDS:
            return
        found = self._keeper.read()
        if found is None or found.generation != self._lease.generation:
            where = f"gs://{self.bucket.name}/{self.run}"
            by = f"taken over by {found.holder}" if found is not None else "deleted"
            raise SweepStopped(
                f"the {self.purpose} of run {self.run!r} does not go on",
                [error(where, f"its lease was {by}", f"held by {self.holder}", "apply the plan again")],
            )
        self._lease = self._keeper.acquire(self.purpose)
        self._renewed = self.clock()
