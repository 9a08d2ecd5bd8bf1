"""PriorityClasses of a cluster file: made where they lack, never changed.

Kubernetes lets nobody change a class's value, and deleting one that is in use changes what the scheduler does to
running pods; so a class that differs is an error with both values, for a person to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everstep.clients.errors import Conflict
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import PRIORITY_CLASSES
from everstep.spec.findings import Finding, error, raise_on_errors, warning


def desired(name: str, value: int) -> dict[str, Any]:
    """Return the PriorityClass object of a name and value."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "everstep"}},
        "value": value,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "Made by Everstep for training runs.",
    }


def compare(name: str, value: int, found: Mapping[str, Any] | None) -> Finding | None:
    """Return what is amiss with a class; None when it is there and equal."""
    where = f"PriorityClass {name}"
    if found is None:
        return error(
            where,
            "not there",
            f"value {value}",
            "everstep provision CLUSTER_FILE --mode apply, or the DAG provision_checkpointing: a run makes no classes",
        )
    if int(found.get("value", 0)) != value:
        return error(
            where,
            f"value {found.get('value', 0)}",
            f"value {value}, as the cluster file says",
            "a class's value can't be changed: correct the cluster file, or delete and make the class anew while no "
            "pod uses it",
        )
    policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
    if policy != "PreemptLowerPriority":
        return error(
            where,
            f"preemptionPolicy {policy}",
            "PreemptLowerPriority, or no slice is ever taken over",
            "use another class, or delete and make this one anew while no pod uses it",
        )
    return None


def default_findings(classes: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return a warning for a class that every pod without one gets: training would then not come before them."""
    return [
        warning(
            f"PriorityClass {each['metadata']['name']}",
            f"globalDefault, value {each.get('value', 0)}: every pod that names no class gets it",
            "no class that is globalDefault",
            "name classes on pods instead: "
            f"kubectl patch priorityclass {each['metadata']['name']} -p '{{\"globalDefault\":false}}'",
        )
        for each in classes
        if each.get("globalDefault")
    ]


def create(client: KubernetesClient, name: str, value: int) -> None:
    """Make one class. One that somebody else, or a try whose answer was lost, has made meanwhile has to be equal.

    Raises FindingsError where it differs.
    """
    try:
        client.create(PRIORITY_CLASSES, desired(name, value))
    except Conflict:
        difference = compare(name, value, client.get(PRIORITY_CLASSES, name))
        raise_on_errors("priority classes differ from the cluster file", [difference] if difference else [])
