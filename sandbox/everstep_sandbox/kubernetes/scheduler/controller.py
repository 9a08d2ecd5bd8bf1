"""Assigns pods to nodes, and makes room for those of higher priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers import conditions, pods
from everstep_sandbox.kubernetes.controllers.conditions import with_condition
from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone, now
from everstep_sandbox.kubernetes.scheduler import preemption
from everstep_sandbox.kubernetes.scheduler.filters import is_hopeless, refusals
from everstep_sandbox.kubernetes.scheduler.snapshot import NodeView, Snapshot, priority
from everstep_sandbox.kubernetes.store import Store

_AGENT = "default-scheduler"
_PASS = "all pending pods"
# What schedulers since 1.34 say first: of claims to devices, which nothing here makes.
_NO_CLAIMS = " no new claims to deallocate, preemption:"


class SchedulerController(Controller):
    """Has one key: a pass over the pods that wait for a node, highest priority first, oldest first among equals.

    A pod that found no place is set aside until something happens that may make room for it.
    """

    resources = frozenset({"pods", "nodes"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events = EventRecorder(store, _AGENT, as_series=True)
        self._aside: set[str] = set()
        """Uids of pods that no node had room for, as the cluster then was."""

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.resource == "nodes":
            if _concerns_scheduling(change):
                self._aside.clear()
                yield _PASS
        elif _is_waiting(change.object) and change.type != "DELETED":
            if change.previous is None or change.previous["spec"] != change.object["spec"]:
                self._aside.discard(change.object["metadata"]["uid"])
                yield _PASS
        elif _may_make_room(change):
            self._aside.clear()
            yield _PASS

    def all_keys(self) -> Iterable[Hashable]:
        self._aside.clear()
        return [_PASS]

    def reconcile(self, key: Hashable) -> float | None:
        pending = [pod for pod in self._store.list("pods") if _is_waiting(pod)]
        waiting = [pod for pod in pending if pod["metadata"]["uid"] not in self._aside]
        waiting.sort(key=lambda pod: (-priority(pod), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        snapshot = self._snapshot()
        for pod in waiting:
            if self._schedule(pod, snapshot, self._nominated(pending)):
                snapshot = self._snapshot()
        return None

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self._store.list("nodes"), self._store.list("pods"))

    def _nominated(self, pending: list[Object]) -> list[Object]:
        """Those of the pending pods, as they are now, for which room is being made on some node."""
        current = (self._store.peek("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pending)
        return [pod for pod in current if pod and _is_waiting(pod) and pod["status"].get("nominatedNodeName")]

    def _schedule(self, pod: Object, snapshot: Snapshot, nominated: list[Object]) -> bool:
        """Returns whether the snapshot must be taken anew."""
        crowded = _with_nominated(snapshot, pod, nominated)
        reasons = {name: refusals(pod, view, crowded) for name, view in crowded.nodes.items()}
        feasible = [crowded.nodes[name] for name, texts in reasons.items() if not texts]
        if feasible:
            node = min(feasible, key=lambda view: _preference(pod, view)).name
            self._bind(pod, node, snapshot)
            return False
        self._aside.add(pod["metadata"]["uid"])
        ineligible = preemption.ineligibility(pod, snapshot)
        candidate = None if ineligible else preemption.find(pod, crowded, reasons)
        hopeless = sum(is_hopeless(pod, crowded.nodes[name], texts) for name, texts in reasons.items())
        preempting = (
            f"{_NO_CLAIMS} {ineligible}"
            if ineligible
            else ""
            if candidate
            else unhelpful_preemption(len(reasons), hopeless)
        )
        self._report_unschedulable(pod, unschedulable_message(reasons) + preempting, candidate)
        if candidate:
            self._preempt(pod, candidate)
        return candidate is not None

    def _bind(self, pod: Object, node: str, snapshot: Snapshot) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        try:
            bound = self._store.bind(namespace, name, node, user_agent=_AGENT)
        except ApiError:
            return
        snapshot.nodes[node].add(bound)
        self._events.record(bound, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")

    def _report_unschedulable(self, pod: Object, message: str, candidate: preemption.Candidate | None) -> None:
        known = conditions.find(pod, "PodScheduled") or {}
        nominated = (pod.get("status") or {}).get("nominatedNodeName")
        wanted = candidate.node if candidate else nominated
        if known.get("message") == message and nominated == wanted:
            return
        changed = clone(pod)
        status = changed.setdefault("status", {})
        status["conditions"] = with_condition(
            status.get("conditions") or [], "PodScheduled", False, now(), reason="Unschedulable", message=message
        )
        if wanted:
            status["nominatedNodeName"] = wanted
        self._store.update("pods", pod["metadata"]["namespace"], changed, subresource="status", user_agent=_AGENT)
        self._events.record(pod, "Warning", "FailedScheduling", message)

    def _preempt(self, pod: Object, candidate: preemption.Candidate) -> None:
        for victim in candidate.victims:
            meta = victim["metadata"]
            if pods.is_deleting(victim):
                continue
            text = f"{_AGENT}: preempting to accommodate a higher priority pod"
            pods.disrupt(self._store, victim, now(), reason="PreemptionByScheduler", message=text, user_agent=_AGENT)
            self._store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"], user_agent=_AGENT)
            by = f"Preempted by pod {pod['metadata']['uid']} on node {candidate.node}"
            self._events.record(victim, "Normal", "Preempted", by)


def unschedulable_message(reasons: dict[str, list[str]]) -> str:
    """The scheduler's text: how many nodes there are, and how many refused for which reason."""
    total = len(reasons)
    if not total:
        return "no nodes available to schedule pods"
    counted = _counted(Counter(text for texts in reasons.values() for text in texts))
    return f"0/{total} nodes are available: {counted}."


def unhelpful_preemption(nodes: int, hopeless: int) -> str:
    """The rest of that text where nothing could be preempted; empty where there are no nodes.

    :param hopeless: how many of the nodes the pod couldn't run on even if no other pod did
    """
    counts = Counter(
        {
            "Preemption is not helpful for scheduling": hopeless,
            "No preemption victims found for incoming pod": nodes - hopeless,
        }
    )
    return f"{_NO_CLAIMS} 0/{nodes} nodes are available: {_counted(counts)}." if nodes else ""


def _counted(texts: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {text}" for text, count in texts.items() if count))


def _concerns_scheduling(change: Change) -> bool:
    """Heartbeats do not change where pods can run."""
    before, after = change.previous, change.object
    if before is None or change.type != "MODIFIED":
        return True
    return (
        before.get("spec") != after.get("spec")
        or before["metadata"].get("labels") != after["metadata"].get("labels")
        or (before.get("status") or {}).get("allocatable") != (after.get("status") or {}).get("allocatable")
    )


def _may_make_room(change: Change) -> bool:
    """A pod has gone or ended; or it is newly placed or labelled, which pods with affinity may wait for."""
    before, after = change.previous, change.object
    if change.type == "DELETED" or before is None:
        return True
    return (
        pods.is_terminal(after) != pods.is_terminal(before)
        or after["spec"].get("nodeName") != before["spec"].get("nodeName")
        or after["metadata"].get("labels") != before["metadata"].get("labels")
    )


def _is_waiting(pod: Object) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and not pods.is_deleting(pod)
        and not pods.is_terminal(pod)
        and not pod["spec"].get("schedulingGates")
        and pod["spec"].get("schedulerName", _AGENT) == _AGENT
    )


def _with_nominated(snapshot: Snapshot, pod: Object, nominated: list[Object]) -> Snapshot:
    """The cluster as if pods of at least this pod's priority already ran where room is being made for them."""
    crowded: dict[str, NodeView] = {}
    for other in nominated:
        node = other["status"]["nominatedNodeName"]
        is_other = other["metadata"]["uid"] != pod["metadata"]["uid"]
        if node in snapshot.nodes and is_other and priority(other) >= priority(pod):
            view = crowded.setdefault(node, snapshot.nodes[node].without(()))
            view.add(other)
    return Snapshot({**snapshot.nodes, **crowded}) if crowded else snapshot


def _preference(pod: Object, view: NodeView) -> tuple[bool, int, str]:
    """The nominated node first, then the emptier one; names decide among equals, so that runs repeat."""
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    return view.name != nominated, len(view.pods), view.name
