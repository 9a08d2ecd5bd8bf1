"""Which pods of lower priority must go so that a pod can run on one node. Pure; no node is freed for another's sake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.scheduler.filters import is_hopeless, refusals
from everstep_sandbox.kubernetes.scheduler.snapshot import NodeView, Snapshot, priority


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and those of its pods that would have to go."""

    node: str
    victims: tuple[Object, ...]


def ineligibility(pod: Object, snapshot: Snapshot) -> str | None:
    """The scheduler's text where the pod may not preempt now: by its policy, or while its victims are still going."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    view = snapshot.nodes.get(nominated) if nominated else None
    going = (other for other in (view.pods if view else ()) if other["metadata"].get("deletionTimestamp"))
    if any(priority(other) < priority(pod) for other in going):
        return "not eligible due to a terminating pod on the nominated node."
    return None


def find(pod: Object, snapshot: Snapshot, reasons: Mapping[str, list[str]]) -> Candidate | None:
    """The node whose victims matter least: lowest highest priority, lowest sum, fewest, latest started."""
    candidates = [
        candidate
        for name, view in snapshot.nodes.items()
        if not is_hopeless(pod, view, reasons.get(name) or ())
        and (candidate := _on_node(pod, view, snapshot)) is not None
    ]
    return min(candidates, key=_cost, default=None)


def _on_node(pod: Object, view: NodeView, snapshot: Snapshot) -> Candidate | None:
    lower = [other for other in view.pods if priority(other) < priority(pod)]
    if not lower:
        return None
    cleared = view.without(lower)
    if refusals(pod, cleared, snapshot.replaced(cleared)):
        return None
    victims: list[Object] = []
    kept = cleared
    for other in sorted(lower, key=lambda found: (-priority(found), _started(found))):
        tried = kept.without(())
        tried.add(other)
        if refusals(pod, tried, snapshot.replaced(tried)):
            victims.append(other)
        else:
            kept = tried
    return Candidate(view.name, tuple(victims)) if victims else None


def _cost(candidate: Candidate) -> tuple[int, int, int, float, str]:
    priorities = [priority(victim) for victim in candidate.victims]
    highest = max(priorities)
    started = min(_started(victim) for victim in candidate.victims if priority(victim) == highest)
    return highest, sum(priorities), len(priorities), -float("".join(filter(str.isdigit, started)) or 0), candidate.node


def _started(pod: Object) -> str:
    return str((pod.get("status") or {}).get("startTime") or pod["metadata"]["creationTimestamp"])
