"""Why an attempt ended: from the shapes that Kubernetes and GKE give to failures, never from logs. Pure.

When one process ends, its peers end too, often before the cluster knows what happened to the first. So the pod to
believe is the earliest one that failed for a reason of its own; a peer that only lost another says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from everstep.launch import exit_codes
from everstep.watch.pods import PodState


class CauseKind(StrEnum):
    """Classes of causes, by who has to do something."""

    PREEMPTED = "preempted"
    INFRASTRUCTURE = "infrastructure"
    PEER_LOST = "peer_lost"
    STOPPED = "stopped"
    CONFIGURATION = "configuration"
    USER = "user"
    UNKNOWN = "unknown"


# Trying again can't change the outcome.
USELESS_TO_REPEAT = frozenset({CauseKind.CONFIGURATION})
# Nobody's fault in the run: no budget is spent on it, and it never counts as "failed the same way again".
EXCUSED = frozenset({CauseKind.PREEMPTED, CauseKind.INFRASTRUCTURE, CauseKind.PEER_LOST, CauseKind.STOPPED})


@dataclass(frozen=True)
class Cause:
    """A cause with the sentence that explains it, and the pod and node that it was seen on."""

    kind: CauseKind
    summary: str
    pod: str = ""
    node: str = ""
    exit_code: int | None = None

    def __str__(self) -> str:
        where = f" (pod {self.pod}{f' on {self.node}' if self.node else ''})" if self.pod else ""
        return f"{self.kind}: {self.summary}{where}"

    @property
    def signature(self) -> str:
        """Return what makes two failures the same one."""
        return f"{self.kind}/{self.exit_code if self.exit_code is not None else self.summary}"


UNKNOWN = Cause(CauseKind.UNKNOWN, "nothing in the cluster says why")

# Reasons of the condition DisruptionTarget (Kubernetes and GKE), also in the spelling of older documentation.
_DISRUPTIONS = {
    "PreemptionByScheduler": (CauseKind.PREEMPTED, "a higher priority took its place"),
    "PreemptionByKubeScheduler": (CauseKind.PREEMPTED, "a higher priority took its place"),
    "DeletionByTaintManager": (CauseKind.INFRASTRUCTURE, "its node stopped answering"),
    "DeletionByPodGC": (CauseKind.INFRASTRUCTURE, "its node is gone"),
    "DeletionByGCPControllerManager": (CauseKind.INFRASTRUCTURE, "its machine is gone"),
    "EvictionByEvictionAPI": (CauseKind.INFRASTRUCTURE, "its node was drained"),
    "TerminationByKubelet": (CauseKind.INFRASTRUCTURE, "its node ended it"),
}
_NODE_SHUTDOWN = re.compile(r"imminent node shutdown|node is shutting down", re.IGNORECASE)
_POD_REASONS = {
    "Terminated": (CauseKind.PREEMPTED, "its node was shut down"),
    "NodeShutdown": (CauseKind.PREEMPTED, "its node was shut down"),
    "Shutdown": (CauseKind.PREEMPTED, "its node was shut down"),
    "Preempting": (CauseKind.PREEMPTED, "a system pod took its place"),
    "NodeLost": (CauseKind.INFRASTRUCTURE, "its node stopped answering"),
    "Evicted": (CauseKind.INFRASTRUCTURE, "its node ran short"),
    "NodeAffinity": (CauseKind.INFRASTRUCTURE, "its node lost the labels that it needs"),
    "UnexpectedAdmissionError": (CauseKind.INFRASTRUCTURE, "its node refused it"),
    "DeadlineExceeded": (CauseKind.CONFIGURATION, "it took longer than activeDeadlineSeconds"),
}
_CANT_START = frozenset({"ContainerCannotRun", "StartError", "CreateContainerError", "CreateContainerConfigError"})
_CANT_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_ABORTED, _KILLED, _TERMINATED = 134, 137, 143

_EXIT_CODE_MESSAGE = re.compile(r"[Cc]ontainer (\S+) for pod (\S+?)/(\S+) failed with exit code (\d+)")
_CONDITION_MESSAGE = re.compile(r"[Pp]od (\S+?)/(\S+) has condition DisruptionTarget")


def classify(pods: Iterable[PodState]) -> Cause:
    """Return why the attempt that these pods belong to ended, judged on the first pod with a cause of its own."""
    failed = [(pod, of_pod(pod)) for pod in pods if pod.has_failed]
    if not failed:
        return UNKNOWN

    def believed_first(judged: tuple[PodState, Cause]) -> tuple[bool, bool, str, bool]:
        pod, cause = judged
        # Whom the Job takes away because another pod failed ends by a signal, often within the same second.
        signalled = pod.exit_code in (_KILLED, _TERMINATED) and pod.disruption is None
        bystander = cause.kind in (CauseKind.PEER_LOST, CauseKind.STOPPED) or (signalled and pod.deleted)
        return (bystander, not pod.ended, pod.ended, signalled)

    return min(failed, key=believed_first)[1]


def of_pod(pod: PodState) -> Cause:
    """Return why one failed pod ended."""

    def cause(kind: CauseKind, summary: str) -> Cause:
        return Cause(kind, summary, pod.name, pod.node, pod.exit_code)

    code = pod.exit_code
    own = code in exit_codes.NAMES and code != exit_codes.DONE
    if code is not None and own and code not in exit_codes.BYSTANDER:
        return cause(_of_own_exit_code(code), exit_codes.describe(code))
    if _NODE_SHUTDOWN.search(pod.message) or _NODE_SHUTDOWN.search(pod.disruption_message):
        return cause(CauseKind.PREEMPTED, "its node was shut down")
    if pod.disruption is not None:
        kind, summary = _DISRUPTIONS.get(pod.disruption, (CauseKind.INFRASTRUCTURE, f"disrupted: {pod.disruption}"))
        return cause(kind, summary)
    if pod.container_reason == "OOMKilled":
        return cause(CauseKind.USER, "it used more memory than its limit (OOMKilled)")
    if pod.reason in _POD_REASONS:
        kind, summary = _POD_REASONS[pod.reason]
        if pod.reason == "Evicted" and "exceed" in pod.message:
            kind = CauseKind.USER
        return cause(kind, f"{summary}: {pod.message}" if pod.message else summary)
    if pod.reason.startswith("OutOf"):
        return cause(CauseKind.INFRASTRUCTURE, f"its node had nothing left for it ({pod.reason})")
    if pod.container_reason in _CANT_START:
        return cause(CauseKind.CONFIGURATION, f"the container can't start ({pod.container_reason})")
    if code is None:
        return cause(CauseKind.UNKNOWN, pod.reason or "it failed without an exit code")
    if own:
        return cause(_of_own_exit_code(code), exit_codes.describe(code))
    if code == _ABORTED:
        return cause(CauseKind.PEER_LOST, f"{exit_codes.describe(code)}: so JAX ends when its coordinator is gone")
    if code == _TERMINATED:
        return cause(CauseKind.INFRASTRUCTURE, f"{exit_codes.describe(code)}: it was told to go")
    if code == _KILLED:
        return cause(CauseKind.UNKNOWN, f"{exit_codes.describe(code)} from outside")
    return cause(CauseKind.USER, exit_codes.describe(code))


def of_stuck(pod: PodState) -> Cause | None:
    """Return why a pod that has not failed will never start; None when nothing says so."""
    if pod.waiting_reason in _CANT_PULL | _CANT_START:
        return Cause(
            CauseKind.CONFIGURATION,
            f"the container can't start: {pod.waiting_reason}: {pod.waiting_message}".rstrip(": "),
            pod.name,
            pod.node,
        )
    return None


def of_nodes(names: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> Cause | None:
    """Return the cause that the state of an attempt's nodes gives; None when all of them are there and well.

    A lost host shows here seconds before its pods say anything; its peers have ended by then.

    :param names: the nodes that the attempt ran on
    :param nodes: all node objects that there are
    """
    present = {node["metadata"]["name"]: node for node in nodes}
    for name in sorted(set(names)):
        node = present.get(name)
        if node is None:
            return Cause(CauseKind.INFRASTRUCTURE, f"node {name} is gone", node=name)
    for name in sorted(set(names)):
        conditions = (present[name].get("status") or {}).get("conditions") or []
        taints = {taint.get("key") for taint in (present[name].get("spec") or {}).get("taints") or []}
        if any(each.get("type") == "Ready" and each.get("status") != "True" for each in conditions):
            return Cause(CauseKind.INFRASTRUCTURE, f"node {name} stopped answering", node=name)
        if "cloud.google.com/impending-node-termination" in taints:
            return Cause(CauseKind.INFRASTRUCTURE, f"node {name} is about to be terminated", node=name)
    return None


def of_message(message: str) -> Cause | None:
    """Return the cause that a failed Job's or JobSet's condition quotes, for when the pods are gone already."""
    match = _EXIT_CODE_MESSAGE.search(message)
    if match:
        code = int(match[4])
        probe = PodState(match[3], "", "", 0, 0, 0, "Failed", exit_code=code)
        return of_pod(probe)
    match = _CONDITION_MESSAGE.search(message)
    if match:
        return Cause(CauseKind.INFRASTRUCTURE, "the cluster took the pod away (DisruptionTarget)", match[2])
    return None


def _of_own_exit_code(code: int) -> CauseKind:
    if code in (exit_codes.CONFIGURATION_ERROR, exit_codes.START_REFUSED, exit_codes.NO_RESTORE_POINT):
        return CauseKind.CONFIGURATION
    if code == exit_codes.USER_EXCEPTION:
        return CauseKind.USER
    return CauseKind.STOPPED if code == exit_codes.STOPPED_ON_REQUEST else CauseKind.PEER_LOST
