"""Namespaces: an object's namespace exists and lives; each has its default service account."""

from __future__ import annotations

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import BY_PLURAL, Resource
from everstep_sandbox.kubernetes.store import Store


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Refuses (404, 403) objects of a namespace that is missing or on its way out; sets up namespaces."""
    if old is not None:
        return
    if resource.plural == "namespaces":
        name = str(new["metadata"].get("name", ""))
        new["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", name)
        new.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        new.setdefault("status", {}).setdefault("phase", "Active")
    elif resource.namespaced:
        namespace = new["metadata"]["namespace"]
        found = store.peek("namespaces", None, namespace)
        if found is None:
            raise errors.not_found(BY_PLURAL["namespaces"], namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(
                resource,
                new["metadata"].get("name", ""),
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )
