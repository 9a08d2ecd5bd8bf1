"""Exclusive placement: what JobSet's pod webhooks do to pods that carry the exclusive-topology annotation.

The leader (completion index 0) is kept apart from other Jobs of the same priority by pod affinity; followers are
refused until the leader is scheduled, and then bound to the leader's topology domain by a node selector.
"""

from __future__ import annotations

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.controllers.jobset import keys
from everstep_sandbox.kubernetes.controllers.pods import INDEX_ANNOTATION, controller_uid
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_WEBHOOK = "vpod.kb.io"


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Admission hook for new pods; raises ApiError 403 for a follower whose leader is not scheduled."""
    if resource.plural != "pods" or old is not None:
        return
    labels = new["metadata"].get("labels") or {}
    if keys.JOBSET_NAME not in labels:
        return
    labels[keys.PRIORITY] = str(new["spec"].get("priority", 0))
    annotations = new["metadata"].get("annotations") or {}
    topology = annotations.get(keys.EXCLUSIVE)
    if topology is None or keys.NODE_SELECTOR_STRATEGY in annotations:
        return
    if annotations.get(INDEX_ANNOTATION) == "0":
        _keep_apart(new, topology)
    else:
        _follow(store, new, topology)


def _keep_apart(pod: Object, topology: str) -> None:
    labels = pod["metadata"]["labels"]
    key = labels[keys.JOB_KEY]
    same_job = [{"key": keys.JOB_KEY, "operator": "In", "values": [key]}]
    other_jobs = [
        {"key": keys.JOB_KEY, "operator": "Exists"},
        {"key": keys.JOB_KEY, "operator": "NotIn", "values": [key]},
        {"key": keys.PRIORITY, "operator": "In", "values": [labels[keys.PRIORITY]]},
    ]
    affinity = pod["spec"].setdefault("affinity", {})
    for family, expressions in (("podAffinity", same_job), ("podAntiAffinity", other_jobs)):
        terms = affinity.setdefault(family, {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
        terms.append(
            {
                "labelSelector": {"matchExpressions": expressions},
                "topologyKey": topology,
                "namespaceSelector": {},
            }
        )


def _follow(store: Store, pod: Object, topology: str) -> None:
    labels = pod["metadata"]["labels"]
    wanted = {name: labels[name] for name in (keys.JOBSET_NAME, keys.REPLICATED_JOB, keys.JOB_INDEX)}
    wanted[INDEX_ANNOTATION] = "0"
    leaders = store.list("pods", pod["metadata"]["namespace"], labels=wanted)
    leader = leaders[0] if len(leaders) == 1 and controller_uid(leaders[0]) == controller_uid(pod) else None
    node = store.peek("nodes", None, leader["spec"]["nodeName"]) if leader and leader["spec"].get("nodeName") else None
    domain = (node["metadata"].get("labels") or {}).get(topology) if node else None
    if domain is None:
        has_any = bool(pod["spec"].get("nodeSelector"))
        why = f" for topology domain not found. missing selector: {topology}" if has_any else " not set"
        raise errors.webhook_denied(_WEBHOOK, f"follower pod node selector{why}")
    pod["spec"].setdefault("nodeSelector", {})[topology] = domain
