"""What a user who kills a waiting task does to its JobSet: `suspend` or `delete` it."""

from __future__ import annotations

from everstep.clients.access import ClusterAccess
from everstep.clients.errors import Conflict
from everstep.clients.resources import JOBSETS
from everstep.clients.sharing import shared_cluster
from everstep.watch import run_state
from everstep.watch.run_state import STOPPED


async def carry_out(policy: str, access: ClusterAccess, namespace: str, run: str, uid: str) -> str:
    """Do what the policy says to this very JobSet, and return what was done, in words.

    Nothing, and an empty text, when it has ended or is not there any more.
    """
    async with shared_cluster(access) as client:
        found = await client.find(JOBSETS, run, namespace)
        state = None if found is None else run_state.of_jobset(found)
        if state is None or state.uid != uid or state.is_terminal:
            return ""
        told = {"metadata": {"annotations": {STOPPED: "a user killed the task"}, "uid": uid}, "spec": {"suspend": True}}
        try:
            if policy == "delete":
                return "deleted" if await client.delete(JOBSETS, run, namespace, uid=uid) else ""
            await client.patch(JOBSETS, run, told, namespace)
        except Conflict:
            # Another JobSet has that name by now.
            return ""
        return "suspended"
