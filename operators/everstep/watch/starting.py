"""Why runs don't start: one look at a namespace's pending pods for all runs that are starting there.

A look asks for the pods that are pending and for the refusals of pods, so it costs two requests for any number of
runs, as long as few pods are pending; the more pages it takes, the longer the next one waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from everstep.clients.errors import RemoteError
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import EVENTS, PODS
from everstep.launch import labels
from everstep.watch import pods as pod_states
from everstep.watch.inbox import Inbox
from everstep.watch.pods import PodState

log = logging.getLogger(__name__)

Event = dict[str, Any]
# What one look reads at most; runs whose pods come after that are told with a later look, when others have started.
MOST_PODS = 5000
# Pods that a look may read at its usual interval.
USUAL_PODS = 500


@dataclass(frozen=True, slots=True)
class Pending:
    """What a look found of one run: its pods that wait, and the refusals of pods in its namespace."""

    pods: list[PodState] = field(default_factory=list)
    refusals: list[Event] = field(default_factory=list)


class StartingRuns:
    """The runs of a namespace that are starting, and the looks that they share."""

    def __init__(self, client: AsyncKubernetesClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._waits: dict[Inbox, tuple[str, float]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, inbox: Inbox, run: str, look_every: float) -> None:
        """Tell an inbox what pods of a run wait for, about every so many seconds, until it is removed."""
        self._waits[inbox] = (run, look_every)
        if self._task is None:
            self._task = asyncio.create_task(self._look_on(), name=f"everstep-starting-{self._namespace}")

    def remove(self, inbox: Inbox) -> None:
        """Tell an inbox nothing more."""
        self._waits.pop(inbox, None)

    async def stop(self) -> None:
        """End the looks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _look_on(self) -> None:
        effort = 1.0
        while self._waits:
            interval = min(look_every for _, look_every in self._waits.values())
            await asyncio.sleep(effort * interval * random.uniform(0.9, 1.1))
            if self._waits:
                effort = await self._look()
        self._task = None

    async def _look(self) -> float:
        """Look once, tell, and return how many intervals to wait before the next look."""
        try:
            pods, _ = await self._client.list_reduced(
                PODS,
                self._namespace,
                _pending,
                labels=labels.JOBSET_NAME,
                fields="status.phase=Pending",
                most=MOST_PODS,
            )
            events, _ = await self._client.list_reduced(
                EVENTS, self._namespace, _refusal, fields="reason=FailedCreate", most=MOST_PODS
            )
        except RemoteError as failure:
            log.info("Pods of %s can't be read: %s", self._namespace, failure.message)
            return 1.0
        except Exception:
            log.exception("Pods of %s can't be judged", self._namespace)
            return 1.0
        by_run: defaultdict[str, list[PodState]] = defaultdict(list)
        for run, pod in pods:
            by_run[run].append(pod)
        of_run = _by_run(events, {run for run, _ in self._waits.values()})
        for inbox, (run, _) in list(self._waits.items()):
            inbox.put(Pending(by_run.get(run, []), of_run.get(run, [])))
        return max(1.0, len(pods) / USUAL_PODS)


def _pending(pod: dict[str, Any]) -> tuple[str, PodState] | None:
    run = ((pod.get("metadata") or {}).get("labels") or {}).get(labels.JOBSET_NAME)
    return None if run is None else (str(run), pod_states.of_pod(pod))


def _refusal(event: Event) -> Event:
    about = event.get("involvedObject") or {}
    return {
        "involvedObject": {"name": about.get("name")},
        "reason": event.get("reason"),
        "message": str(event.get("message", ""))[:1000],
        "lastTimestamp": event.get("lastTimestamp") or event.get("eventTime"),
        "metadata": {"creationTimestamp": (event.get("metadata") or {}).get("creationTimestamp")},
    }


def _by_run(events: Iterable[Event], runs: set[str]) -> dict[str, list[Event]]:
    """Sort events by the run whose JobSet or Job they are about."""
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        name = str(event["involvedObject"]["name"])
        while name and name not in runs:
            name = name.rpartition("-")[0]
        if name:
            found[name].append(event)
    return found
