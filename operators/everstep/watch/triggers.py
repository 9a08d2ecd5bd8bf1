"""The wait for the end of a run, in the triggerer.

The trigger never decides: it says that something happened, and the operator reads the JobSet afresh. Its arguments are
plain values without secrets, and the deadline is a point in time, so a restart of the triggerer changes nothing.
Airflow imports this module in the triggerer's event loop, so what it needs comes in later, by a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from everstep.watch.late_imports import loaded
from everstep.watch.pacing import PerLoop, Turnstile

# Airflow marks a task failed whose deferral ends before its worker has gone (apache/airflow#66374, #71580).
DWELL_SECONDS = 10.0
# A triggerer that starts takes up to its whole capacity of waits at once.
starts = PerLoop(lambda: Turnstile(25))


class TrainingTrigger(BaseTrigger):
    """Fires once when a JobSet has ended, is gone, gets nowhere or passes its deadline.

    The event is a dictionary with `kind` (a WaitEnd) and `message`, and with `uid` and `deadline` as given.

    :param cluster: a ClusterAccess as a dictionary
    :param storage: a StorageAccess as a dictionary
    :param bucket: the bucket of the run's folder
    :param uid: the JobSet that is waited for; another one of that name is not it
    :param launch: the launch number of that JobSet
    :param deadline: seconds since the epoch after which the wait gives up
    :param on_kill_policy: detach, suspend or delete: what a user who kills the task does to the JobSet
    :param dwell: least seconds before the event
    """

    def __init__(
        self,
        *,
        cluster: Mapping[str, Any],
        storage: Mapping[str, Any],
        bucket: str,
        run_name: str,
        namespace: str,
        uid: str,
        launch: int,
        deadline: float,
        on_kill_policy: str = "detach",
        dwell: float = DWELL_SECONDS,
    ) -> None:
        super().__init__()
        self.cluster = dict(cluster)
        self.storage = dict(storage)
        self.bucket = bucket
        self.run_name = run_name
        self.namespace = namespace
        self.uid = uid
        self.launch = launch
        self.deadline = deadline
        self.on_kill_policy = on_kill_policy
        self.dwell = dwell

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, plain values only."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "cluster": self.cluster,
                "storage": self.storage,
                "bucket": self.bucket,
                "run_name": self.run_name,
                "namespace": self.namespace,
                "uid": self.uid,
                "launch": self.launch,
                "deadline": self.deadline,
                "on_kill_policy": self.on_kill_policy,
                "dwell": self.dwell,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        started = time.monotonic()
        event = await self.wait()
        await asyncio.sleep(max(0.0, self.dwell - (time.monotonic() - started)))
        yield TriggerEvent(event)

    async def wait(self) -> dict[str, Any]:
        """Wait, and return the event's content."""
        await starts.get().enter()
        await loaded("everstep.watch.follower")
        from everstep.clients.access import ClusterAccess, StorageAccess
        from everstep.clients.errors import RemoteError
        from everstep.watch.follower import Follower, WaitEnd

        follower = Follower(
            access=ClusterAccess(**self.cluster),
            storage=StorageAccess(**self.storage),
            bucket=self.bucket,
            run=self.run_name,
            namespace=self.namespace,
            uid=self.uid,
            launch=self.launch,
            deadline=self.deadline,
            log=self.log,
        )
        try:
            end = await follower.follow()
        except RemoteError as failure:
            end = {"kind": WaitEnd.ERROR.value, "message": failure.message}
        return {**end, "uid": self.uid, "deadline": self.deadline}

    async def on_kill(self) -> None:
        """Do to the JobSet what the run's policy says when a user kills the waiting task (Airflow 3.3 and newer)."""
        if self.on_kill_policy == "detach":
            self.log.info("Killed by a user: the run goes on, as recovery.on_kill: detach says.")
            return
        await loaded("everstep.watch.kill_policy")
        from everstep.clients.access import ClusterAccess
        from everstep.watch import kill_policy

        done = await kill_policy.carry_out(
            self.on_kill_policy, ClusterAccess(**self.cluster), self.namespace, self.run_name, self.uid
        )
        if done:
            self.log.warning("Killed by a user: JobSet %s/%s %s.", self.namespace, self.run_name, done)
