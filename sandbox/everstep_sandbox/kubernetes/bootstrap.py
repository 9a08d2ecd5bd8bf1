"""What a fresh cluster already holds: namespaces, system priority classes, the two custom resource definitions."""

from __future__ import annotations

from everstep_sandbox.kubernetes.custom_schemas import CUSTOM_SCHEMAS
from everstep_sandbox.kubernetes.objects import Object, timestamp
from everstep_sandbox.kubernetes.resources import RESOURCES, Resource
from everstep_sandbox.kubernetes.store import Store

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system", "gke-managed-checkpointing", "jobset-system")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
CSI_DRIVER = "multitier-checkpoint.csi.storage.gke.io"


def create_initial_objects(store: Store) -> None:
    """Creates what is missing; objects that exist are left as they are."""
    for name in NAMESPACES:
        _ensure(store, "namespaces", {"metadata": {"name": name}})
    for name, value in _SYSTEM_PRIORITIES.items():
        description = "Used for system critical pods."
        _ensure(store, "priorityclasses", {"metadata": {"name": name}, "value": value, "description": description})
    _ensure(
        store,
        "csidrivers",
        {
            "metadata": {"name": CSI_DRIVER},
            "spec": {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": ["Ephemeral"]},
        },
    )
    for resource in RESOURCES:
        if resource.custom:
            _ensure(store, "customresourcedefinitions", definition(resource))


def _ensure(store: Store, plural: str, obj: Object) -> None:
    if store.peek(plural, None, obj["metadata"]["name"]) is None:
        store.create(plural, None, obj, user_agent="kube-apiserver")


def definition(resource: Resource) -> Object:
    names = {
        "plural": resource.plural,
        "singular": resource.singular,
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "shortNames": list(resource.short_names),
    }
    schema = CUSTOM_SCHEMAS[resource.plural]
    return {
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": schema["description"],
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
        "status": {
            "acceptedNames": names,
            "storedVersions": [resource.version],
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": timestamp(), "reason": reason}
                for kind, reason in (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted"))
            ],
        },
    }
