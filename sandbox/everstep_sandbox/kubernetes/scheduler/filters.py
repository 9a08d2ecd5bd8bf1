"""Whether a pod can run on a node, and the scheduler's text where it can't. Pure.

The order and the wording follow the real scheduler's default plugins; the first plugin that refuses decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.scheduler.quantities import pod_requests
from everstep_sandbox.kubernetes.scheduler.snapshot import NodeView, Snapshot
from everstep_sandbox.kubernetes.selectors import matches_label_selector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

UNRESOLVABLE = frozenset(
    {
        "node(s) were unschedulable",
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
    }
)
"""Refusals that no preemption can mend."""


def is_hopeless(pod: Object, view: NodeView, refused: Iterable[str]) -> bool:
    """Whether the pod can't run on the node even if no other pod did."""
    if not UNRESOLVABLE.isdisjoint(refused):
        return True
    empty = NodeView(view.node)
    return any(amount > 0 and amount > empty.free(name) for name, amount in pod_requests(pod["spec"]).items())


def refusals(pod: Object, view: NodeView, snapshot: Snapshot) -> list[str]:
    """Why the pod can't run on the node now; empty where it can."""
    spec, node = pod["spec"], view.node
    node_spec = node.get("spec") or {}
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node_spec.get("unschedulable") and not any(tolerates(t, unschedulable) for t in spec.get("tolerations") or ()):
        return ["node(s) were unschedulable"]
    if untolerated_taint(spec, node_spec.get("taints") or ()) is not None:
        return ["node(s) had untolerated taint(s)"]
    if not node_selection_matches(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    lacking = [
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in pod_requests(spec).items()
        if amount > 0 and amount > view.free(name)
    ]
    if lacking:
        return lacking
    return _affinity_refusals(pod, view, snapshot)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated_taint(spec: Mapping[str, Any], taints: Iterable[Object]) -> Object | None:
    """The first taint that keeps a pod of this spec from the node, or None."""
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        blocks = taint["effect"] in ("NoSchedule", "NoExecute")
        if blocks and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def node_selection_matches(spec: Mapping[str, Any], node: Object) -> bool:
    """nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = (((spec.get("affinity") or {}).get("nodeAffinity")) or {}).get(_REQUIRED)
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and matches_label_selector({"matchExpressions": term.get("matchExpressions") or []}, labels)
        and matches_label_selector({"matchExpressions": term.get("matchFields") or []}, fields)
        for term in required.get("nodeSelectorTerms") or ()
    )


def _affinity_refusals(pod: Object, view: NodeView, snapshot: Snapshot) -> list[str]:
    for term in _terms(pod, "podAffinity"):
        if not _affinity_holds(term, pod, view, snapshot):
            return ["node(s) didn't match pod affinity rules"]
    for term in _terms(pod, "podAntiAffinity"):
        if _any_in_domain(term, pod, view, snapshot):
            return ["node(s) didn't match pod anti-affinity rules"]
    for other_view, other in snapshot.pods():
        for term in _terms(other, "podAntiAffinity"):
            key = term["topologyKey"]
            same_domain = key in view.labels and view.labels.get(key) == other_view.labels.get(key)
            if same_domain and _matches(term, other, pod):
                return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


def _affinity_holds(term: Object, pod: Object, view: NodeView, snapshot: Snapshot) -> bool:
    if term["topologyKey"] not in view.labels:
        return False
    if _any_in_domain(term, pod, view, snapshot):
        return True
    # The first pod of a group that wants to be together has nothing to be near to.
    nobody = not any(_matches(term, pod, other) for _, other in snapshot.pods())
    return nobody and _matches(term, pod, pod)


def _any_in_domain(term: Object, pod: Object, view: NodeView, snapshot: Snapshot) -> bool:
    key = term["topologyKey"]
    domain = view.labels.get(key)
    return domain is not None and any(
        other_view.labels.get(key) == domain and _matches(term, pod, other) for other_view, other in snapshot.pods()
    )


def _matches(term: Object, owner: Object, other: Object) -> bool:
    """Whether `other` is one that the term (of `owner`) is about."""
    if other["metadata"]["uid"] == owner["metadata"]["uid"] and other is not owner:
        return False
    namespaces = term.get("namespaces") or []
    everywhere = "namespaceSelector" in term and not namespaces and not term["namespaceSelector"]
    if not everywhere:
        allowed = namespaces or [owner["metadata"]["namespace"]]
        if other["metadata"]["namespace"] not in allowed:
            return False
    return matches_label_selector(term.get("labelSelector"), other["metadata"].get("labels") or {})


def _terms(pod: Object, family: str) -> list[Object]:
    affinity = (pod["spec"].get("affinity") or {}).get(family) or {}
    return affinity.get(_REQUIRED) or []
