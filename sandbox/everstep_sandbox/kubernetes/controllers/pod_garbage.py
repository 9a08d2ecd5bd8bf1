"""Pods of nodes that no longer exist: after a quarantine they are marked as disrupted, failed and removed."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers import pods
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import now
from everstep_sandbox.kubernetes.store import Store

_AGENT = "pod-garbage-collector"
# The real collector looks every 20 s and waits until a node has been missing for 40 s.
QUARANTINE_SECONDS = 40.0


class PodGarbageController(Controller):
    """Keys are names of nodes that pods are assigned to."""

    resources = frozenset({"pods", "nodes"})

    def __init__(self, store: Store, *, speed: float) -> None:
        self._store = store
        self._quarantine = QUARANTINE_SECONDS / speed
        self._missing_since: dict[str, float] = {}

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.resource == "nodes":
            yield change.object["metadata"]["name"]
        elif node := change.object["spec"].get("nodeName"):
            yield node

    def all_keys(self) -> Iterable[Hashable]:
        return {pod["spec"]["nodeName"] for pod in self._store.list("pods") if pod["spec"].get("nodeName")}

    def reconcile(self, key: Hashable) -> float | None:
        node = str(key)
        if self._store.peek("nodes", None, node) is not None:
            self._missing_since.pop(node, None)
            return None
        orphans = [pod for pod in self._store.list("pods") if pod["spec"].get("nodeName") == node]
        if not orphans:
            self._missing_since.pop(node, None)
            return None
        left = self._missing_since.setdefault(node, time.monotonic()) + self._quarantine - time.monotonic()
        if left > 0:
            return left
        for pod in orphans:
            if not pods.is_terminal(pod):
                pods.disrupt(
                    self._store,
                    pod,
                    now(),
                    reason="DeletionByPodGC",
                    message="PodGC: node no longer exists",
                    user_agent=_AGENT,
                    failed=True,
                )
            self._store.delete(
                "pods",
                pod["metadata"]["namespace"],
                pod["metadata"]["name"],
                grace_period_seconds=0,
                uid=pod["metadata"]["uid"],
                user_agent=_AGENT,
            )
        return None
