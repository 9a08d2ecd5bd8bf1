"""Nodes whose kubelet has stopped: NotReady after the grace period, tainted, their pods not ready."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers import conditions
from everstep_sandbox.kubernetes.controllers.conditions import with_condition
from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone, now, timestamp
from everstep_sandbox.kubernetes.store import Store

_AGENT = "node-controller"
GRACE_SECONDS = 40.0
# Silent nodes are tainted for eviction one by one, and none while most of the cluster is silent: that is taken for a
# trouble of the network. Zones are not told apart.
_SECONDS_BETWEEN_EVICTIONS = 10.0
_MOST = 0.55
_FEW = 2

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_LEASES = "kube-node-lease"
_NEVER_HEARD = "never heard"


class NodeLifeController(Controller):
    """Keys are names of nodes."""

    resources = frozenset({"nodes", "leases"})

    def __init__(self, store: Store, *, speed: float) -> None:
        self._store = store
        self._grace = GRACE_SECONDS / speed
        self._pause = _SECONDS_BETWEEN_EVICTIONS / speed
        self._next_eviction = 0.0
        self._events = EventRecorder(store, _AGENT)
        self._heard: dict[str, tuple[str, float]] = {}
        """Node -> its last signs of life, and when they were seen by our own clock."""

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "nodes" or meta["namespace"] == _LEASES:
            yield meta["name"]

    def all_keys(self) -> Iterable[Hashable]:
        return [node["metadata"]["name"] for node in self._store.list("nodes")]

    def reconcile(self, key: Hashable) -> float | None:
        name = str(key)
        node = self._store.peek("nodes", None, name)
        if node is None:
            self._heard.pop(name, None)
            return None
        lease = self._store.peek("leases", _LEASES, name)
        ready = conditions.find(node, "Ready") or {"status": _NEVER_HEARD}
        # Either is a sign of life.
        renewed = f"{(lease or {}).get('spec', {}).get('renewTime')} {ready.get('lastHeartbeatTime')}"
        if self._heard.get(name, ("", 0.0))[0] != renewed or name not in self._heard:
            self._heard[name] = (renewed, time.monotonic())
        left = self._heard[name][1] + self._grace - time.monotonic()
        if left <= 0 and ready["status"] == "True":
            node = self._mark_unknown(node)
            ready = conditions.find(node, "Ready") or ready
        withheld = self._set_taints(node, ready["status"])
        if ready["status"] != "True":
            self._mark_pods(name)
        return left if left > 0 else withheld

    def _mark_unknown(self, node: Object) -> Object:
        changed = clone(node)
        status = changed["status"]
        for kind in [condition["type"] for condition in status["conditions"]]:
            status["conditions"] = with_condition(
                status["conditions"],
                kind,
                "Unknown",
                now(),
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
            )
        stored = self._store.update("nodes", None, changed, subresource="status", user_agent=_AGENT)
        text = f"Node {node['metadata']['name']} status is now: NodeNotReady"
        self._events.record(stored, "Normal", "NodeNotReady", text)
        return stored

    def _set_taints(self, node: Object, ready: str) -> float | None:
        """Returns in how many seconds to look again, where the taint that evicts has to wait."""
        wanted = {"Unknown": UNREACHABLE, "False": NOT_READY, _NEVER_HEARD: NOT_READY}.get(ready)
        taints = list((node.get("spec") or {}).get("taints") or ())
        kept = [
            taint
            for taint in taints
            if taint["key"] == wanted or taint["key"] not in (UNREACHABLE, NOT_READY, UNSCHEDULABLE)
        ]
        effects = {taint["effect"] for taint in kept if taint["key"] == wanted}
        withheld: float | None = None
        if wanted and ready != _NEVER_HEARD and "NoExecute" not in effects:
            withheld = self._seconds_to_eviction()
        for effect in ("NoSchedule", *(() if withheld or ready == _NEVER_HEARD else ("NoExecute",))):
            if wanted and effect not in effects:
                kept.append({"key": wanted, "effect": effect, "timeAdded": timestamp()})
        if node["spec"].get("unschedulable"):
            known = [taint for taint in taints if taint["key"] == UNSCHEDULABLE]
            kept += known or [{"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": timestamp()}]
        if sorted(map(repr, kept)) != sorted(map(repr, taints)):
            self._store.patch(
                "nodes", None, node["metadata"]["name"], {"spec": {"taints": kept or None}}, user_agent=_AGENT
            )
        return withheld or None

    def _seconds_to_eviction(self) -> float:
        """0 where one more node may be tainted now, which then is the one."""
        nodes = self._store.list("nodes")
        known = [condition for node in nodes if (condition := conditions.find(node, "Ready"))]
        silent = sum(condition["status"] != "True" for condition in known)
        if silent == len(nodes) or (silent > _FEW and silent >= _MOST * len(nodes)):
            return self._pause
        left = self._next_eviction - time.monotonic()
        if left <= 0:
            self._next_eviction = time.monotonic() + self._pause
        return max(left, 0.0)

    def _mark_pods(self, node: str) -> None:
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") == node and conditions.holds(pod, "Ready"):
                changed = clone(pod)
                changed["status"]["conditions"] = [
                    {**condition, "status": "False", "lastTransitionTime": timestamp()}
                    if condition["type"] == "Ready"
                    else condition
                    for condition in pod["status"]["conditions"]
                ]
                self._store.update(
                    "pods", pod["metadata"]["namespace"], changed, subresource="status", user_agent=_AGENT
                )
                self._events.record(pod, "Warning", "NodeNotReady", "Node is not ready")
