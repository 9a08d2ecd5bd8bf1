"""Gives every namespace its ServiceAccount `default`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers.pods import is_deleting
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.store import Store


class ServiceAccountController(Controller):
    """Keys are names of namespaces."""

    resources = frozenset({"namespaces", "serviceaccounts"})

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        yield meta["name"] if change.resource == "namespaces" else meta["namespace"]

    def all_keys(self) -> Iterable[Hashable]:
        return [namespace["metadata"]["name"] for namespace in self._store.list("namespaces")]

    def reconcile(self, key: Hashable) -> float | None:
        name = str(key)
        namespace = self._store.peek("namespaces", None, name)
        if namespace is None or is_deleting(namespace):
            return None
        if self._store.peek("serviceaccounts", name, "default") is None:
            self._store.create(
                "serviceaccounts", name, {"metadata": {"name": "default"}}, user_agent="service-account-controller"
            )
        return None
