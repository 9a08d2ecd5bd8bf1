"""What failed pods say, asked for while they are there: a restart deletes them."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import PODS
from everstep.launch import labels
from everstep.watch import pods as pod_states
from everstep.watch.pods import PodState

LOOKS = 6
PAUSE_SECONDS = 0.1
# Runs of so few pods are read whole at every look; of larger ones only those in phase Failed.
FEW_PODS = 200


async def failed_pods(
    client: AsyncKubernetesClient, namespace: str, run: str, attempt: int, *, pods: int, looks: int = LOOKS
) -> list[PodState]:
    """Return the failed pods of one attempt of a run, reduced. Raises RemoteError.

    A slice stops being ready a moment before its pod has failed, so a look that finds none is repeated. A pod that
    the cluster takes away says so before its phase does, so the first look also reads pods that have not failed yet.

    :param pods: how many pods the run has
    """
    selector = f"{labels.JOBSET_NAME}={run},{labels.RESTART_ATTEMPT}={attempt}"
    for look in range(looks):
        if look:
            await asyncio.sleep(PAUSE_SECONDS)
        found, _ = await client.list_reduced(PODS, namespace, _failed, labels=selector, fields="status.phase=Failed")
        if not found and (look == 0 or pods <= FEW_PODS):
            found, _ = await client.list_reduced(
                PODS, namespace, _failed, labels=selector, fields="status.phase!=Failed"
            )
        if found:
            return found
    return []


async def has_pods(client: AsyncKubernetesClient, namespace: str, run: str, attempt: int) -> bool:
    """Say whether one attempt of a run has any pod. Raises RemoteError."""
    selector = f"{labels.JOBSET_NAME}={run},{labels.RESTART_ATTEMPT}={attempt}"
    found, _ = await client.list_reduced(PODS, namespace, lambda pod: True, labels=selector, most=1)
    return bool(found)


def _failed(pod: dict[str, Any]) -> PodState | None:
    state = pod_states.of_pod(pod)
    return state if state.has_failed else None
