"""Who uses the checkpoint driver on some nodes: what a deletion of its configuration would break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.clients.kubernetes import Object
from everstep.clients.resources import JOBSETS, NODES, PODS
from everstep.launch import labels
from everstep.provision.in_cluster.reading import Reader
from everstep.spec.findings import Finding, error
from everstep.watch import run_state
from everstep.watch.run_state import Phase

# Who owns the pods that come and go with a node.
_OF_NODES = frozenset({"DaemonSet", "Node"})
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class User:
    """A JobSet, or a pod that belongs to none, with the driver's volume on nodes of a configuration."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def jobsets(reader: Reader, selector: Mapping[str, str]) -> list[Object]:
    """Return the JobSets whose pods ask for the driver's volume on nodes that `selector` may choose, ended ones too."""
    return [each for each in reader.list_all(JOBSETS) if _asks(each, selector)]


def live(reader: Reader, selector: Mapping[str, str]) -> list[User]:
    """Return everybody who uses the driver now: JobSets that run or start, and pods, on nodes of a `nodeSelector`."""
    found = {}
    for each in jobsets(reader, selector):
        state = run_state.of_jobset(each)
        if state.phase in (Phase.RUNNING, Phase.STARTING):
            found[state.namespace, state.name] = User("JobSet", state.namespace, state.name)
    for pod in pods(reader, selector):
        namespace = pod["metadata"]["namespace"]
        owner = (pod["metadata"].get("labels") or {}).get(labels.JOBSET_NAME)
        name = owner or pod["metadata"]["name"]
        found.setdefault((namespace, name), User("JobSet" if owner else "Pod", namespace, name))
    return sorted(found.values(), key=str)


def pods(reader: Reader, selector: Mapping[str, str]) -> list[Object]:
    """Return the pods with the driver's volume on nodes that `selector` chooses, those that are ending included."""
    query = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    nodes = {node["metadata"]["name"] for node in reader.list_all(NODES, labels=query)}
    return [
        pod
        for pod in reader.list_all(PODS, fields=LIVE_PODS)
        if (pod.get("spec") or {}).get("nodeName") in nodes and _has_volume(pod["spec"])
    ]


def workloads(reader: Reader, selector: Mapping[str, str]) -> list[User]:
    """Return everybody whose pods run on nodes that `selector` chooses; what every node has is nobody's work."""
    query = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    nodes = {node["metadata"]["name"] for node in reader.list_all(NODES, labels=query)}
    found = {}
    for pod in reader.list_all(PODS, fields=LIVE_PODS) if nodes else ():
        metadata = pod["metadata"]
        owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
        if (pod.get("spec") or {}).get("nodeName") not in nodes or owners & _OF_NODES:
            continue
        jobset = (metadata.get("labels") or {}).get(labels.JOBSET_NAME)
        user = User("JobSet" if jobset else "Pod", metadata["namespace"], jobset or metadata["name"])
        found[str(user)] = user
    return [found[key] for key in sorted(found)]


def refusals(where: str, users: Sequence[User], lost: str) -> list[Finding]:
    """Return an error for each user, whom a deletion would break."""
    return [
        error(
            where,
            f"used by {user}",
            "nobody who uses it",
            f"suspend it first (kubectl patch {user.kind.lower()} {user.name} -n {user.namespace} --type=merge -p "
            f'\'{{"spec":{{"suspend":true}}}}\'), or force it: {lost}'
            if user.kind == "JobSet"
            else f"kubectl delete pod {user.name} -n {user.namespace}, or force it: {lost}",
        )
        for user in users
    ]


def _asks(jobset: Object, selector: Mapping[str, str]) -> bool:
    for each in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        template = (((each.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        own = template.get("nodeSelector") or {}
        if _has_volume(template) and all(own.get(key, value) == value for key, value in selector.items()):
            return True
    return False


def _has_volume(pod_spec: Mapping[str, Any]) -> bool:
    return any(
        (volume.get("csi") or {}).get("driver") == labels.CHECKPOINT_DRIVER for volume in pod_spec.get("volumes") or ()
    )
