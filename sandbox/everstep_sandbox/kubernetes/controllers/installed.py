"""What is installed into a cluster by manifests: custom resource definitions, and the JobSet controller.

The two custom resources that the sandbox knows are served as long as their definition is there, with the sandbox's own
schemas. The JobSet controller, which runs inside the API server, works as long as its Deployment is there and wants a
replica; whatever version its image names, it behaves as 0.11. Other Deployments are kept as objects only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.bootstrap import JOBSET_DEPLOYMENT, JOBSET_NAMESPACE
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone, set_condition
from everstep_sandbox.kubernetes.resources import RESOURCES, set_defined
from everstep_sandbox.kubernetes.store import Store

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_CUSTOM = {resource.qualified: resource.plural for resource in RESOURCES if resource.custom}


class DefinitionController(Controller):
    """Keys are names of CustomResourceDefinitions."""

    resources = frozenset({"customresourcedefinitions", *_CUSTOM.values()})

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.resource == "customresourcedefinitions":
            yield change.object["metadata"]["name"]
            return
        for name, plural in _CUSTOM.items():
            # Only the last object that goes with its definition matters.
            if plural == change.resource and change.type == "DELETED":
                yield name

    def all_keys(self) -> Iterable[Hashable]:
        return list(_CUSTOM)

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, str)
        found = self._store.get("customresourcedefinitions", None, key)
        plural = _CUSTOM.get(key)
        if found is None:
            if plural is not None:
                set_defined(plural, defined=False)
            return None
        if found["metadata"].get("deletionTimestamp"):
            self._remove(found, plural)
            return None
        if plural is not None and _CLEANUP not in (found["metadata"].get("finalizers") or ()):
            found["metadata"].setdefault("finalizers", []).append(_CLEANUP)
            found = self._store.update("customresourcedefinitions", None, found, user_agent="apiextensions")
        changed = clone(found)
        changed.setdefault("status", {})["acceptedNames"] = found["spec"]["names"]
        changed["status"]["storedVersions"] = [one["name"] for one in found["spec"]["versions"] if one.get("storage")]
        set_condition(changed, "NamesAccepted", "True", reason="NoConflicts", message="no conflicts found")
        set_condition(changed, "Established", "True", reason="InitialNamesAccepted", message="accepted")
        self._store.update("customresourcedefinitions", None, changed, subresource="status", user_agent="apiextensions")
        if plural is not None:
            set_defined(plural, defined=True)
        return None

    def _remove(self, found: Object, plural: str | None) -> None:
        """Deletes the objects first; the definition goes when none is left, which finalizers may hold up."""
        left = self._store.list(plural) if plural is not None else []
        for obj in left:
            meta = obj["metadata"]
            if not meta.get("deletionTimestamp"):
                self._store.delete(plural or "", meta.get("namespace"), meta["name"], user_agent="apiextensions")
        if plural is not None and self._store.list(plural):
            return
        kept = [one for one in found["metadata"].get("finalizers") or () if one != _CLEANUP]
        if plural is not None:
            set_defined(plural, defined=False)
        found["metadata"]["finalizers"] = kept
        self._store.update("customresourcedefinitions", None, found, user_agent="apiextensions")


class JobSetDeploymentController(Controller):
    """Gives the JobSet controller's Deployment the status of one that runs."""

    resources = frozenset({"deployments"})

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if (meta["namespace"], meta["name"]) == (JOBSET_NAMESPACE, JOBSET_DEPLOYMENT):
            yield JOBSET_DEPLOYMENT

    def all_keys(self) -> Iterable[Hashable]:
        yield JOBSET_DEPLOYMENT

    def reconcile(self, key: Hashable) -> float | None:
        found = self._store.get("deployments", JOBSET_NAMESPACE, JOBSET_DEPLOYMENT)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return None
        wanted = found["spec"].get("replicas", 1)
        status = found.setdefault("status", {})
        status["observedGeneration"] = found["metadata"].get("generation", 1)
        for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
            status[name] = wanted
        set_condition(
            found,
            "Available",
            "True",
            reason="MinimumReplicasAvailable",
            message="Deployment has minimum availability.",
        )
        set_condition(
            found,
            "Progressing",
            "True",
            reason="NewReplicaSetAvailable",
            message="ReplicaSet has successfully progressed.",
        )
        self._store.update(
            "deployments", JOBSET_NAMESPACE, found, subresource="status", user_agent="deployment-controller"
        )
        return None


def jobset_is_installed(store: Store) -> bool:
    """Whether the JobSet controller works now."""
    found = store.peek("deployments", JOBSET_NAMESPACE, JOBSET_DEPLOYMENT)
    return found is not None and found["spec"].get("replicas", 1) > 0
