"""What a fresh cluster already holds: namespaces, system priority classes; a furnished one also GKE's checkpointing
and the JobSet controller."""

from __future__ import annotations

from everstep_sandbox.kubernetes.custom_schemas import CUSTOM_SCHEMAS
from everstep_sandbox.kubernetes.objects import Object, timestamp
from everstep_sandbox.kubernetes.resources import RESOURCES, Resource, set_defined
from everstep_sandbox.kubernetes.store import Store

_OWN_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
NAMESPACES = (*_OWN_NAMESPACES, "gke-managed-checkpointing", "jobset-system")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
JOBSET_NAMESPACE = "jobset-system"
JOBSET_DEPLOYMENT = "jobset-controller-manager"
JOBSET_VERSION = "v0.11.1"
CSI_DRIVER = "multitier-checkpoint.csi.storage.gke.io"


def create_initial_objects(store: Store, *, furnished: bool = True) -> None:
    """Creates what is missing; objects that exist are left as they are.

    A cluster that is not furnished has neither custom resources nor a JobSet controller until somebody brings them.
    """
    is_fresh = store.version == 0
    for name in NAMESPACES if furnished else _OWN_NAMESPACES:
        _ensure(store, "namespaces", {"metadata": {"name": name}})
    for name, value in _SYSTEM_PRIORITIES.items():
        description = "Used for system critical pods."
        _ensure(store, "priorityclasses", {"metadata": {"name": name}, "value": value, "description": description})
    if furnished:
        _ensure(store, "csidrivers", csi_driver())
        _ensure(store, "deployments", jobset_deployment(), namespace=JOBSET_NAMESPACE)
    for resource in RESOURCES:
        if resource.custom:
            # A definition that somebody has deleted stays away.
            if furnished and is_fresh:
                _ensure(store, "customresourcedefinitions", definition(resource))
            found = store.peek("customresourcedefinitions", None, resource.qualified)
            set_defined(resource.plural, defined=found is not None)


def _ensure(store: Store, plural: str, obj: Object, *, namespace: str | None = None) -> None:
    if store.peek(plural, namespace, obj["metadata"]["name"]) is None:
        store.create(plural, namespace, obj, user_agent="kube-apiserver")


def csi_driver() -> Object:
    """What GKE's add-on registers."""
    return {
        "metadata": {"name": CSI_DRIVER},
        "spec": {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": ["Ephemeral"]},
    }


def jobset_deployment() -> Object:
    """The JobSet controller as its manifest installs it; the sandbox runs it inside its API server."""
    labels = {"control-plane": "controller-manager"}
    manager = {
        "name": "manager",
        "image": f"registry.k8s.io/jobset/jobset:{JOBSET_VERSION}",
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "500m", "memory": "128Mi"}},
    }
    return {
        "metadata": {"name": JOBSET_DEPLOYMENT},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [manager]}},
        },
    }


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
