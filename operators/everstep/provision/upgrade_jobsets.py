"""What an upgrade notes on JobSets and asks of them."""

from __future__ import annotations

from everstep.clients.kubernetes import Object
from everstep.clients.resources import WORKLOADS
from everstep.launch import labels
from everstep.provision.in_cluster import texts
from everstep.provision.in_cluster.reading import Reader

# On a configuration: the upgrade that it was made in. On a JobSet: the upgrade that it was suspended for.
UPGRADE = "everstep.dev/upgrade"
SUSPENDED_FOR = "everstep.dev/suspended-for-upgrade"


def annotation(item: Object, key: str) -> str | None:
    """Return an annotation of an object."""
    value: str | None = (item["metadata"].get("annotations") or {}).get(key)
    return value


def name_of(jobset: Object) -> str:
    """Return a JobSet's name as findings have it."""
    return f"JobSet {jobset['metadata']['namespace']}/{jobset['metadata']['name']}"


def has_trainer(jobset: Object) -> bool:
    """Say whether Everstep's trainer runs in a JobSet: the observer beside other trainers can't save."""
    for each in jobset["spec"].get("replicatedJobs") or ():
        pod = each["template"]["spec"]["template"]["spec"]
        names = {container["name"] for container in [*pod["containers"], *(pod.get("initContainers") or ())]}
        if labels.TRAINER_CONTAINER in names and labels.OBSERVER_CONTAINER not in names:
            return True
    return False


def workloads_of(reader: Reader, jobset: Object) -> list[Object]:
    """Return Kueue's Workloads of a JobSet."""
    metadata = jobset["metadata"]
    return [
        each
        for each in reader.list_all(WORKLOADS, metadata["namespace"])
        if any(owner.get("uid") == metadata["uid"] for owner in each["metadata"].get("ownerReferences") or ())
    ]


def set_active(reader: Reader, workload: Object, *, active: bool) -> None:
    """Let Kueue admit a Workload, or evict it."""
    metadata = workload["metadata"]
    body = {"metadata": {"uid": metadata["uid"]}, "spec": {"active": active}}
    reader.client.patch(WORKLOADS, metadata["name"], body, metadata["namespace"])


def suspend_command(jobset: Object) -> str:
    """Return the command that suspends a JobSet that no queue rules."""
    metadata = jobset["metadata"]
    patch = texts.flow({"spec": {"suspend": True}})
    return texts.kubectl("patch", "jobset", metadata["name"], "-n", metadata["namespace"], "--type=merge", "-p", patch)
