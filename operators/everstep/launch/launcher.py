"""Bringing a run to life exactly once: lease, record, JobSet. Knows no Airflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.errors import Conflict, Unavailable
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.clients.run_folder import RunContents
from everstep.clients.storage import BucketClient
from everstep.launch import labels, manifest, run_record
from everstep.launch.decision import Action, Decision, decide
from everstep.launch.lease import JobSetReference, LeaseHeldError, LeaseKeeper
from everstep.spec.findings import FindingsError
from everstep.spec.training import TrainingSpec
from everstep.watch import run_state
from everstep.watch.run_state import STOPPED, Phase, RunState

log = logging.getLogger(__name__)

DELETION_SECONDS = 600.0
_FIRST_POLL, _LONGEST_POLL = 0.2, 5.0


@dataclass(frozen=True)
class Launched:
    """The JobSet that stands for the run now, and how it came to: created, attached to, or found complete."""

    state: RunState
    action: Action

    @property
    def launch(self) -> int:
        """Return the JobSet's launch number."""
        return self.state.launch or 0


class Launcher:
    """Launches one run for one holder.

    :param holder: who launches; the same over the tries of one task, different for anybody else
    :param replace_changed: replace a live JobSet of this holder whose spec is not today's
    :param before_create: looks whether a JobSet can run, and raises when not; nothing has been made by then but the
        lease
    """

    def __init__(
        self,
        spec: TrainingSpec,
        cluster: KubernetesClient,
        bucket: BucketClient,
        holder: str,
        *,
        replace_changed: bool = False,
        before_create: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.cluster = cluster
        self.bucket = bucket
        self._holder = holder
        self._replace_changed = replace_changed
        self._before_create = before_create
        self._clock = clock
        self._namespace = spec.cluster_spec.namespace

    def launch(self) -> Launched:
        """Create, attach to, or replace the run's JobSet. Raises FindingsError when it must not be touched."""
        keeper = LeaseKeeper(self.bucket, self.cluster, self.spec.name, self._holder)
        self._refuse_foreign()
        attempt = 1
        while True:
            lease = keeper.acquire("launch")
            log.info("Lease of run %s taken (fencing %d).", self.spec.name, lease.fencing)
            state = self.state()
            decision = self._decide(state)
            if decision.finding is not None:
                keeper.release()
                raise FindingsError(f"run {self.spec.name!r} can't be launched", [decision.finding])
            log.info("%s: %s.", decision.why, decision.action)
            if decision.action is Action.CREATE:
                try:
                    return Launched(self._create(keeper, attempt), decision.action)
                except Conflict as change:
                    log.warning("Something changed meanwhile (%s): looking again.", change.message)
                    continue
            assert state is not None
            if decision.action in (Action.ATTACH, Action.TAKE_VERDICT):
                keeper.bind(lease, JobSetReference(state.namespace, state.name, state.uid))
                return Launched(state, decision.action)
            if state.phase is Phase.FAILED and state.holder == self._holder:
                attempt = state.attempt + 1
            if decision.action is Action.REPLACE:
                self.cluster.delete(JOBSETS, state.name, self._namespace, uid=state.uid)
            self._await_deletion(state)

    def state(self) -> RunState | None:
        """Read the run's JobSet afresh; None when there is none."""
        found = self.cluster.find(JOBSETS, self.spec.name, self._namespace)
        return None if found is None else run_state.of_jobset(found)

    def contents(self) -> RunContents:
        """Read what would be restored."""
        folder = RunFolder(self.bucket.name, self.spec.name)
        return self.bucket.run(run_folder.contents(folder, self.spec.shape, everything=False))

    def stop(self, state: RunState, reason: str) -> None:
        """Suspend a JobSet because going on is useless; it stays for a look at it, and the next launch replaces it."""
        self.cluster.patch(
            JOBSETS,
            state.name,
            {"metadata": {"annotations": {STOPPED: reason[:500]}, "uid": state.uid}, "spec": {"suspend": True}},
            self._namespace,
        )

    def release(self) -> None:
        """Give the run's lease back."""
        LeaseKeeper(self.bucket, self.cluster, self.spec.name, self._holder).release()

    def _decide(self, state: RunState | None) -> Decision:
        return decide(
            state,
            run=self.spec.name,
            holder=self._holder,
            spec_hash=manifest.fingerprint(self.spec),
            replace_changed=self._replace_changed,
        )

    def _refuse_foreign(self) -> None:
        # Before the lease is taken, so that a launch that has no chance leaves nothing behind.
        decision = self._decide(self.state())
        if decision.finding is not None:
            raise FindingsError(f"run {self.spec.name!r} can't be launched", [decision.finding])

    def _create(self, keeper: LeaseKeeper, attempt: int) -> RunState:
        """Make the run's next JobSet. Raises Conflict when something changed meanwhile: a retry of the same task while
        its lost worker goes on, or a creation whose answer was lost and that was therefore tried again."""
        try:
            self._before_create()
        except Exception:
            keeper.release()
            raise
        contents = self.contents()
        for line in resume_lines(contents, self.spec.final_step):
            log.info("%s", line)
        # Looking may have taken long: a lease that was lost meanwhile must be noticed before anything is made.
        lease = keeper.acquire("launch", anew=True)
        record = run_record.next_launch(self.bucket, self.spec)
        body = manifest.build(self.spec, launch=record.launch, holder=self._holder, attempt=attempt)
        state = run_state.of_jobset(self.cluster.create(JOBSETS, body, self._namespace))
        try:
            keeper.bind(lease, JobSetReference(state.namespace, state.name, state.uid))
        except LeaseHeldError:
            self.cluster.delete(JOBSETS, state.name, self._namespace, uid=state.uid)
            raise
        log.info("JobSet %s/%s created: launch %d, uid %s.", state.namespace, state.name, record.launch, state.uid)
        return state

    def _await_deletion(self, state: RunState) -> None:
        deadline = self._clock() + DELETION_SECONDS
        wait = _FIRST_POLL
        while True:
            now = self.state()
            if now is None or now.uid != state.uid:
                return
            if self._clock() >= deadline:
                raise Unavailable(
                    f"JobSet {state.namespace}/{state.name} is still being deleted after {DELETION_SECONDS:.0f} s; "
                    "a pod on a node that does not answer may hold it: "
                    f"kubectl get pods -n {state.namespace} -l {labels.JOBSET_NAME}={state.name}, and force-delete "
                    "that pod once the machine is gone"
                )
            time.sleep(wait)
            wait = min(wait * 1.5, _LONGEST_POLL)


def resume_lines(contents: RunContents, final_step: int | None) -> list[str]:
    """Return in sentences what a new JobSet of the run resumes from, and what is lost."""
    good = contents.last_known_good
    if good is None:
        return ["Nothing to restore in the bucket: it starts from step 0, unless RAM disks hold something."]
    final = f" of {final_step}" if final_step else ""
    lines = [f"It resumes from step {good.step}{final} ({good.tier} {good.name}), or from a later step in RAM disks."]
    status = contents.status or {}
    if isinstance(status.get("step"), int) and status["step"] > good.step:
        lines.append(
            f"The run had reached step {status['step']}: {status['step'] - good.step} steps are lost unless RAM disks "
            "still hold them."
        )
    return lines
