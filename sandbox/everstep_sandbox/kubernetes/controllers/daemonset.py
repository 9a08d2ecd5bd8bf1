"""DaemonSets: one pod on every node that the template selects and tolerates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.pods import (
    controller_reference,
    controller_uid,
    is_deleting,
    is_ready,
    is_terminal,
    phase,
)
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.scheduler.filters import node_selection_matches, untolerated_taint
from everstep_sandbox.kubernetes.selectors import matches_label_selector
from everstep_sandbox.kubernetes.store import Store

_AGENT = "daemonset-controller"

# Taints that the real controller makes every daemon pod tolerate.
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController(Controller):
    """Keys are (namespace, name) of DaemonSets."""

    resources = frozenset({"daemonsets", "pods", "nodes"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events = EventRecorder(store, _AGENT)

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "nodes":
            yield from self.all_keys()
        elif change.resource == "daemonsets":
            yield meta["namespace"], meta["name"]
        elif (owner := controller_reference(change.object)) and owner["kind"] == "DaemonSet":
            yield meta["namespace"], owner["name"]

    def all_keys(self) -> Iterable[Hashable]:
        for daemonset in self._store.list("daemonsets"):
            yield daemonset["metadata"]["namespace"], daemonset["metadata"]["name"]

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, tuple)
        daemonset = self._store.peek("daemonsets", *key)
        if daemonset is None or is_deleting(daemonset):
            return None
        selector, uid = daemonset["spec"]["selector"], daemonset["metadata"]["uid"]
        pods = [
            pod
            for pod in self._store.list("pods", key[0])
            if controller_uid(pod) == uid and matches_label_selector(selector, pod["metadata"].get("labels") or {})
        ]
        nodes = self._store.list("nodes")
        wanted = {node["metadata"]["name"] for node in nodes if _belongs(daemonset, node)}
        existing = {node["metadata"]["name"] for node in nodes}
        # A pod that runs stays unless a taint evicts: NoSchedule only keeps new ones away.
        may_stay = {node["metadata"]["name"] for node in nodes if _belongs(daemonset, node, ("NoExecute",))}
        self._delete_superfluous(daemonset, pods, may_stay, existing)
        for name in sorted(wanted - {_target(pod) for pod in pods}):
            pod = self._store.create("pods", key[0], _pod(daemonset, name), user_agent=_AGENT)
            self._events.record(daemonset, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        self._write_status(daemonset, pods, wanted)
        return None

    def _delete_superfluous(
        self, daemonset: Object, pods: list[Object], may_stay: set[str], existing: set[str]
    ) -> None:
        """Deletes pods of nodes where they may not stay, and ended ones. Pods of lost nodes are the garbage
        collector's, which waits before it believes that a node is lost."""
        for pod in pods:
            if is_deleting(pod):
                continue
            target, lost = _target(pod), bool(pod["spec"].get("nodeName")) and _target(pod) not in existing
            if is_terminal(pod) or (target not in may_stay and not lost):
                self._store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], user_agent=_AGENT)
                if phase(pod) == "Failed":
                    text = f"Found failed daemon pod {pod['metadata']['name']} on node {target}, will try to kill it"
                    self._events.record(daemonset, "Warning", "FailedDaemonPod", text)

    def _write_status(self, daemonset: Object, pods: list[Object], wanted: set[str]) -> None:
        placed = [pod for pod in pods if _target(pod) in wanted and not is_deleting(pod)]
        ready = sum(map(is_ready, placed))
        current = len({_target(pod) for pod in placed})
        changed = clone(daemonset)
        changed["status"] = {
            **(daemonset.get("status") or {}),
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": current,
            "updatedNumberScheduled": current,
            "numberMisscheduled": sum(_target(pod) not in wanted for pod in pods),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
            "observedGeneration": daemonset["metadata"].get("generation", 1),
        }
        self._store.update(
            "daemonsets", daemonset["metadata"]["namespace"], changed, subresource="status", user_agent=_AGENT
        )


def _belongs(daemonset: Object, node: Object, effects: tuple[str, ...] = ("NoSchedule", "NoExecute")) -> bool:
    spec = {**daemonset["spec"]["template"]["spec"]}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations()]
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] in effects]
    return node_selection_matches(spec, node) and untolerated_taint(spec, taints) is None


def _pod(daemonset: Object, node: str) -> Object:
    meta, template = daemonset["metadata"], clone(daemonset["spec"]["template"])
    spec = template["spec"]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations()]
    affinity = spec.setdefault("affinity", {})
    affinity["nodeAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        }
    }
    template_meta = template.get("metadata") or {}
    revision = hashlib.sha256(json.dumps(daemonset["spec"]["template"], sort_keys=True).encode()).hexdigest()[:10]
    return {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": {
                **(template_meta.get("labels") or {}),
                "controller-revision-hash": revision,
                "pod-template-generation": str(meta.get("generation", 1)),
            },
            "annotations": template_meta.get("annotations") or {},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _tolerations() -> list[Object]:
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]


def _target(pod: Object) -> str:
    """The node that a daemon pod is meant for, scheduled or not."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
