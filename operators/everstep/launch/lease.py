"""The lease of a run: one object in its folder, held by one launch, resume or sweep at a time.

It makes "one live JobSet per run" true where no single cluster can see it: across namespaces, clusters and Airflows.
Every change is made on the generation that was read, so of two that act at once exactly one succeeds. Each new holder
gets a higher fencing number.

A lease is not renewed while its run trains. Once it stands for a JobSet it binds for as long as that lives: it is
there, has not ended and was not stopped. Before that it binds for its time; where the JobSet is in a cluster that can't
be looked into, for its time and then while status.json keeps being written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients.errors import Conflict
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS, NAMESPACES
from everstep.clients.storage import BucketClient
from everstep.spec.findings import Finding, FindingsError, error
from everstep.watch import run_state

LIFETIME = timedelta(minutes=10)
_TRIES = 5

log = logging.getLogger(__name__)


class LeaseHeldError(FindingsError):
    """Somebody else holds the run."""


@dataclass(frozen=True)
class JobSetReference:
    """A JobSet: namespace, name and uid."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Lease:
    """A lease as it stands in the bucket. `holder` is None once it was given back."""

    run: str
    holder: str | None
    purpose: str
    fencing: int
    acquired: datetime
    renewed: datetime
    expires: datetime
    cluster: str
    jobset: JobSetReference | None = None
    generation: int = 0

    def document(self) -> dict[str, Any]:
        """Return the lease as it is written."""
        return {
            "version": 1,
            "run": self.run,
            "holder": self.holder,
            "purpose": self.purpose,
            "fencing": self.fencing,
            "acquired": timestamp(self.acquired),
            "renewed": timestamp(self.renewed),
            "expires": timestamp(self.expires),
            "cluster": self.cluster,
            "jobset": None if self.jobset is None else vars(self.jobset),
        }


def timestamp(time: datetime) -> str:
    """Return a time as all records write it: RFC 3339, UTC, Z."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cluster_id(client: KubernetesClient) -> str:
    """Return what identifies a cluster everywhere: the uid of its namespace kube-system."""
    return str(client.get(NAMESPACES, "kube-system")["metadata"]["uid"])


class LeaseKeeper:
    """Takes, updates and gives back one run's lease for one holder.

    :param cluster: None looks into no cluster: leases of JobSets then bind as those of another cluster do
    :param place: another object than the run's lease, for what goes on beside a living run
    """

    def __init__(
        self,
        bucket: BucketClient,
        cluster: KubernetesClient | None,
        run: str,
        holder: str,
        *,
        place: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._folder = RunFolder(bucket.name, run)
        self._place = place or self._folder.lease
        self._holder = holder
        self._now = now
        self._cluster_id = cluster_id(cluster) if cluster is not None else ""

    def read(self) -> Lease | None:
        """Return the lease as it stands, None when the run never had one."""
        stored = self._bucket.read(self._place)
        return None if stored is None else _parse(stored.body, stored.generation, self._folder.url(self._place))

    def sees(self, lease: Lease) -> bool:
        """Say whether the cluster that a lease speaks of can be looked into."""
        return self._cluster is not None and lease.cluster == self._cluster_id

    def binding(self) -> Finding | None:
        """Return that somebody else holds the run, if that is so."""
        found = self.read()
        if found is None or found.holder in (None, self._holder):
            return None
        blocking = self._why_it_binds(found)
        return None if blocking is None else self._held(found, blocking)

    def acquire(self, purpose: str, *, anew: bool = False) -> Lease:
        """Take the lease, or take it again. Raises LeaseHeldError when somebody else holds it.

        :param anew: a JobSet is about to be made: the lease stands for none until it is bound to that
        """
        for _ in range(_TRIES):
            found = self.read()
            if found is not None and found.holder not in (None, self._holder):
                blocking = self._why_it_binds(found)
                if blocking is not None:
                    raise LeaseHeldError(
                        f"run {self._folder.run!r} is held by somebody else",
                        [self._held(found, blocking)],
                    )
                log.warning("Breaking the lease of %s: its run is over.", found.holder)
            now = self._now()
            again = found is not None and found.holder == self._holder
            wanted = Lease(
                run=self._folder.run,
                holder=self._holder,
                purpose=purpose,
                fencing=found.fencing if found is not None and again else (found.fencing if found else 0) + 1,
                acquired=found.acquired if found is not None and again else now,
                renewed=now,
                expires=now + LIFETIME,
                cluster=self._cluster_id,
                jobset=found.jobset if found is not None and again and not anew else None,
            )
            try:
                return self._write(wanted, found.generation if found is not None else 0)
            except Conflict:
                continue
        raise self._fought_over()

    def bind(self, lease: Lease, jobset: JobSetReference) -> Lease:
        """Record the JobSet that the lease stands for. Raises LeaseHeldError when the lease was lost meanwhile."""
        for _ in range(_TRIES):
            now = self._now()
            try:
                return self._write(replace(lease, jobset=jobset, renewed=now, expires=now + LIFETIME), lease.generation)
            except Conflict:
                found = self.read()
                if found is None or found.holder not in (None, self._holder):
                    raise self._lost(found) from None
                # Another try of this holder took it again, or gave it back.
                lease = replace(lease, generation=found.generation)
        raise self._fought_over()

    def release(self) -> bool:
        """Give the lease back if this holder has it. Return whether it did."""
        found = self.read()
        if found is None or found.holder != self._holder:
            return False
        try:
            self._write(replace(found, holder=None, renewed=self._now(), expires=self._now()), found.generation)
        except Conflict:
            return False
        return True

    def _write(self, lease: Lease, generation: int) -> Lease:
        written = self._bucket.write(self._place, lease.document(), generation=generation)
        return replace(lease, generation=written)

    def _why_it_binds(self, lease: Lease) -> str | None:
        """Return why somebody else's lease must be respected; None when it may be broken."""
        if lease.jobset is not None and self._cluster is not None and self.sees(lease):
            return self._life_of(self._cluster, lease.jobset)
        now = self._now()
        if now < lease.expires:
            return f"it is valid until {timestamp(lease.expires)}"
        if self.sees(lease):
            return None
        if lease.jobset is None and not lease.cluster:
            # A sweep, made where no cluster could be looked into: it has no training that could report.
            return None
        stored = self._bucket.read(self._folder.status)
        updated = _updated(stored.body) if stored else None
        if updated is not None and now - updated < LIFETIME:
            return f"its run in another cluster reported at {timestamp(updated)}"
        return None

    @staticmethod
    def _life_of(cluster: KubernetesClient, jobset: JobSetReference) -> str | None:
        found = cluster.find(JOBSETS, jobset.name, jobset.namespace)
        if found is None:
            return None
        state = run_state.of_jobset(found)
        if state.uid != jobset.uid or state.is_terminal or state.stopped is not None:
            return None
        return f"its JobSet {jobset.namespace}/{jobset.name} lives ({state.phase})"

    def _fought_over(self) -> LeaseHeldError:
        return LeaseHeldError(
            f"the lease of run {self._folder.run!r} is fought over",
            [error(self._folder.url(self._place), f"changed by others {_TRIES} times in a row")],
        )

    def _lost(self, found: Lease | None) -> LeaseHeldError:
        return LeaseHeldError(
            f"the lease of run {self._folder.run!r} was lost",
            [
                error(
                    self._folder.url(self._place),
                    f"taken over by {found.holder}" if found else "deleted",
                    f"held by {self._holder}, which was launching",
                    "nothing, if somebody else launches the run now; otherwise launch again",
                )
            ],
        )

    def _held(self, lease: Lease, blocking: str) -> Finding:
        jobset = f" for JobSet {lease.jobset.namespace}/{lease.jobset.name}" if lease.jobset else ""
        return error(
            self._folder.url(self._place),
            f"held by {lease.holder} ({lease.purpose}{jobset}) since {timestamp(lease.acquired)}; {blocking}",
            "a free lease: two JobSets of one run would write over each other's checkpoints",
            "wait for that run to end, stop it, or give this one another name",
        )


def _parse(body: bytes, generation: int, url: str) -> Lease:
    try:
        document = json.loads(body)
        jobset = document.get("jobset")
        return Lease(
            run=document["run"],
            holder=document["holder"],
            purpose=document["purpose"],
            fencing=int(document["fencing"]),
            acquired=datetime.fromisoformat(document["acquired"]),
            renewed=datetime.fromisoformat(document["renewed"]),
            expires=datetime.fromisoformat(document["expires"]),
            cluster=document["cluster"],
            jobset=None if jobset is None else JobSetReference(**jobset),
            generation=generation,
        )
    except (ValueError, KeyError, TypeError) as failure:
        raise FindingsError(
            "the lease of a run can't be read",
            [
                error(
                    url,
                    f"{type(failure).__name__}: {failure}",
                    "a lease as Everstep writes it",
                    "delete the object once you know that no JobSet of the run lives anywhere",
                )
            ],
        ) from None


def _updated(body: bytes) -> datetime | None:
    try:
        return datetime.fromisoformat(json.loads(body)["updated"])
    except (ValueError, KeyError, TypeError):
        return None
