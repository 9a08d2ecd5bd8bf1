"""Why a run's pods don't run yet. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everstep.launch.labels import JOBSET_NAME
from everstep.spec.names import REPLICATED_JOB
from everstep.watch import classifier
from everstep.watch.pods import PodState

_POD_NAME = re.compile(r'pods "[^"]+"')


def explain(pods: Sequence[PodState], events: Iterable[Mapping[str, Any]], run: str, expected: int) -> list[str]:
    """Return sentences about what pods of the present attempt wait for, the most frequent first.

    :param pods: those that are pending
    :param events: events of the namespace with the reason FailedCreate
    :param expected: how many pods the run has in all
    """
    told: Counter[str] = Counter()
    for pod in pods:
        if pod.waiting_reason and pod.waiting_reason != "ContainerCreating":
            told[f"{pod.waiting_reason}: {pod.waiting_message}".rstrip(": ")] += 1
        elif pod.unschedulable:
            told[f"no node: {pod.unschedulable}"] += 1
    if not pods:
        refused = refusals(events, run)
        return [f"no pod can be made: {text}" for text in refused[:2]]
    return [f"{len(pods)} of {expected} pods wait", *(f"{count} x {text}" for text, count in told.most_common(3))]


def refusals(events: Iterable[Mapping[str, Any]], run: str) -> list[str]:
    """Return why pods of a run's Jobs were refused, newest first: quota, priority class, service account, webhooks.

    Names of pods, which are new at every try, are left out; so each reason stands there once.
    """
    found = []
    for event in events:
        about = event.get("involvedObject") or {}
        ours = str(about.get("name", "")).startswith(f"{run}-{REPLICATED_JOB}-") or about.get("name") == run
        if event.get("reason") == "FailedCreate" and ours:
            at = (
                event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
            )
            found.append((str(at), _POD_NAME.sub("a pod", str(event.get("message", "")))))
    return list(dict.fromkeys(message for _, message in sorted(found, reverse=True)))


def never_starts(pods: Sequence[PodState], events: Iterable[Mapping[str, Any]], run: str) -> classifier.Cause | None:
    """Return the cause when waiting longer is useless: no pod can be made, or a container can't start."""
    for pod in pods:
        cause = classifier.of_stuck(pod)
        if cause is not None:
            return cause
    refused = [] if pods else refusals(events, run)
    if not refused:
        return None
    return classifier.Cause(classifier.CauseKind.CONFIGURATION, f"no pod can be made: {refused[0]}")


def selector(run: str) -> str:
    """Return the label selector of a run's pods."""
    return f"{JOBSET_NAME}={run}"
