"""Where the driver of a CheckpointConfiguration stands, node by node. Pure.

A configuration has no status of its own: whether its driver is ready is read from its pods, and why not from events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep.doctor.redaction import redact_text

Object = Mapping[str, Any]

FINALIZER = "checkpointing.gke.io/checkpoint-target-protection"
DENIED = "storage.objects."
NO_TOKEN = ("generate access token", "getAccessToken")
ADVICE_DENIED = (
    "the driver may not use the bucket: roles/storage.objectUser on it lacks for "
    "ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node of the cluster's workload pool "
    "(everstep provision CLUSTER_FILE --mode apply grants it)"
)
ADVICE_NO_TOKEN = (
    "the driver gets no token: Workload Identity is off on the cluster, or the node pool lacks the GKE metadata server "
    "(gcloud container node-pools update POOL --workload-metadata=GKE_METADATA); the bucket's roles don't matter here"
)


def daemon_set_name(configuration: Object) -> str:
    """Return the name of the DaemonSet that the controller makes for a configuration."""
    return f"multitier-driver-{configuration['metadata']['uid']}"


def own_pods(configuration: Object, pods: Iterable[Object]) -> list[Object]:
    """Return the driver pods of a configuration among those of the driver's namespace."""
    prefix = f"{daemon_set_name(configuration)}-"
    return [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]


@dataclass(frozen=True)
class Standing:
    """The driver on the nodes that its configuration selects.

    :param nodes: the nodes' names
    :param lacking: node -> why the driver is not ready there
    """

    nodes: tuple[str, ...]
    lacking: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> int:
        """Return on how many nodes it is ready."""
        return len(self.nodes) - len(self.lacking)

    @property
    def is_ready(self) -> bool:
        """Say whether it is ready on every node; there may be none."""
        return not self.lacking

    def __str__(self) -> str:
        if not self.nodes:
            return "no node is selected: the driver comes with the first one"
        text = f"the driver is ready on {self.ready} of {len(self.nodes)} nodes"
        # Many nodes lack it for few reasons.
        by_reason: dict[str, list[str]] = {}
        for node, why in sorted(self.lacking.items()):
            by_reason.setdefault(why, []).append(node)
        for why, names in list(by_reason.items())[:5]:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            text += f"; {', '.join(names[:3])}{more}: {why}"
        return text


def standing(
    configuration: Object, nodes: Sequence[Object], pods: Iterable[Object], events: Iterable[Object] = ()
) -> Standing:
    """Return where the driver stands.

    :param nodes: those that the configuration selects
    :param pods: those of the driver's namespace
    :param events: those of the driver's namespace, for reasons
    """
    by_node = {(pod.get("spec") or {}).get("nodeName"): pod for pod in own_pods(configuration, pods)}
    warnings = _newest_warnings(events)
    lacking = {}
    for node in nodes:
        why = _why_not(configuration, node, by_node.get(node["metadata"]["name"]), warnings)
        if why is not None:
            lacking[node["metadata"]["name"]] = why
    return Standing(tuple(node["metadata"]["name"] for node in nodes), lacking)


def unscheduled(pods: Iterable[Object]) -> list[str]:
    """Return the driver pods that no node has yet: while there is one, no new configuration gets its driver."""
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["name"].startswith("multitier-driver-") and not (pod.get("spec") or {}).get("nodeName")
    ]


def _why_not(configuration: Object, node: Object, pod: Object | None, warnings: Mapping[str, str]) -> str | None:
    if pod is None:
        keys = [taint["key"] for taint in _untolerated(configuration, node)]
        if keys:
            return f"no driver pod, since the configuration tolerates no taint {', '.join(keys)}"
        return "no driver pod" if _is_ready(node) else "the node is not ready, and has no driver pod"
    if pod["metadata"].get("deletionTimestamp"):
        return "its driver pod is ending"
    if _is_ready(pod):
        return None
    name = pod["metadata"]["name"]
    # The pod's name would keep nodes that lack it for the same reason apart.
    text = f"its driver pod is {_phase(pod)}"
    if not _is_ready(node):
        text += ", and the node is not ready"
    message = warnings.get(name)
    return text if message is None else f"{text}: {message}{_advice(message)}"


def _phase(pod: Object) -> str:
    status = pod.get("status") or {}
    for kind, prefix in (("initContainerStatuses", "Init"), ("containerStatuses", "")):
        each: list[Object] = status.get(kind) or []
        done = [
            one
            for one in each
            if one.get("ready") or (one.get("state") or {}).get("terminated", {}).get("exitCode") == 0
        ]
        waiting = [((one.get("state") or {}).get("waiting") or {}).get("reason") for one in each]
        reasons = sorted({reason for reason in waiting if reason})
        if each and len(done) < len(each):
            told = f"{prefix}:{len(done)}/{len(each)}" if prefix else f"{len(done)}/{len(each)} ready"
            return f"{told} ({', '.join(reasons)})" if reasons else told
    return str(status.get("phase") or "unknown")


def _advice(message: str) -> str:
    if any(text in message for text in NO_TOKEN):
        return f" - {ADVICE_NO_TOKEN}"
    if DENIED in message and ("denied" in message or "403" in message):
        return f" - {ADVICE_DENIED}"
    return ""


def _newest_warnings(events: Iterable[Object]) -> dict[str, str]:
    """Return the newest warning about each pod."""
    newest: dict[str, tuple[str, str]] = {}
    for event in events:
        if event.get("type") != "Warning":
            continue
        name = (event.get("involvedObject") or {}).get("name", "")
        when = str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
        # It goes into logs and errors: an event may quote a login.
        message = redact_text(" ".join(str(event.get("message", "")).split()))
        text = f"{event.get('reason')}: {message[:600]}"
        if name not in newest or when >= newest[name][0]:
            newest[name] = (when, text)
    return {name: text for name, (_, text) in newest.items()}


def _untolerated(configuration: Object, node: Object) -> list[Object]:
    tolerations = (configuration.get("spec") or {}).get("tolerations") or []
    taints = (node.get("spec") or {}).get("taints") or []
    # The DaemonSet controller itself tolerates what Kubernetes puts on nodes in trouble.
    foreign = [each for each in taints if not str(each.get("key", "")).startswith("node.kubernetes.io/")]
    return [
        taint
        for taint in foreign
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations)
    ]


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def _is_ready(item: Object) -> bool:
    return any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in (item.get("status") or {}).get("conditions") or ()
    )
