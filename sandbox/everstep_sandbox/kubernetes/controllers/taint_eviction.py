"""Evicts pods from nodes with NoExecute taints that they do not tolerate, or no longer."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers import pods
from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, now
from everstep_sandbox.kubernetes.scheduler.filters import tolerates
from everstep_sandbox.kubernetes.store import Store

_AGENT = "taint-eviction-controller"


class TaintEvictionController(Controller):
    """Keys are (namespace, name) of pods. tolerationSeconds are divided by the sandbox's speed."""

    resources = frozenset({"pods", "nodes"})

    def __init__(self, store: Store, *, speed: float) -> None:
        self._store = store
        self._speed = speed
        self._events = EventRecorder(store, _AGENT)
        self._seen: dict[tuple[str, str], float] = {}
        """(node's uid, taint's key) -> when it was first seen here: a taint's timeAdded is optional and coarse."""

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "pods":
            if change.object["spec"].get("nodeName"):
                yield meta["namespace"], meta["name"]
        elif _executing(change.object) or (change.previous and _executing(change.previous)):
            for pod in self._store.list("pods"):
                if pod["spec"].get("nodeName") == meta["name"]:
                    yield pod["metadata"]["namespace"], pod["metadata"]["name"]

    def all_keys(self) -> Iterable[Hashable]:
        return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self._store.list("pods")]

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, tuple)
        pod = self._store.peek("pods", *key)
        if pod is None or pods.is_terminal(pod) or pods.is_deleting(pod) or not pod["spec"].get("nodeName"):
            return None
        node = self._store.peek("nodes", None, pod["spec"]["nodeName"])
        if node is None:
            return None
        taints = _executing(node)
        self._remember(node, taints)
        left = min((self._seconds_left(pod, node, taint) for taint in taints), default=float("inf"))
        if left == float("inf"):
            return None
        if left > 0:
            return left
        text = "Taint manager: deleting due to NoExecute taint"
        pods.disrupt(self._store, pod, now(), reason="DeletionByTaintManager", message=text, user_agent=_AGENT)
        self._events.record(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key[0]}/{key[1]}")
        self._store.delete("pods", *key, uid=pod["metadata"]["uid"], user_agent=_AGENT)
        return None

    def _remember(self, node: Object, taints: list[Object]) -> None:
        uid = node["metadata"]["uid"]
        present = {(uid, taint["key"]) for taint in taints}
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != uid or key in present}
        for key in present:
            self._seen.setdefault(key, time.monotonic())

    def _seconds_left(self, pod: Object, node: Object, taint: Object) -> float:
        """Until this taint evicts the pod: infinite where it is tolerated without limit."""
        matching = [item for item in pod["spec"].get("tolerations") or () if tolerates(item, taint)]
        limits = [item["tolerationSeconds"] for item in matching if item.get("tolerationSeconds") is not None]
        if not matching:
            return 0.0
        if not limits:
            return float("inf")
        since = self._seen[node["metadata"]["uid"], taint["key"]]
        return max(0.0, float(min(limits)) / self._speed - (time.monotonic() - since))


def _executing(node: Object) -> list[Object]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == "NoExecute"]
