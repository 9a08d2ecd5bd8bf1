"""Keeps the status of ResourceQuotas: their bounds, and how much of each is taken."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes import quotas
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import clone
from everstep_sandbox.kubernetes.store import Store


class QuotaController(Controller):
    """Keys are (namespace, name) of quotas."""

    resources = frozenset({"resourcequotas", "pods"})

    def __init__(self, store: Store) -> None:
        self._store = store

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "resourcequotas":
            yield meta["namespace"], meta["name"]
            return
        for quota in self._store.list("resourcequotas", meta["namespace"]):
            yield meta["namespace"], quota["metadata"]["name"]

    def all_keys(self) -> Iterable[Hashable]:
        return [
            (quota["metadata"]["namespace"], quota["metadata"]["name"]) for quota in self._store.list("resourcequotas")
        ]

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, tuple)
        quota = self._store.get("resourcequotas", *key)
        if quota is None:
            return None
        taken = quotas.used(quotas.hard(quota), self._store.list("pods", key[0]))
        quota["status"] = {
            "hard": clone((quota.get("spec") or {}).get("hard") or {}),
            "used": {name: quotas.written(amount) for name, amount in taken.items()},
        }
        self._store.update("resourcequotas", key[0], quota, subresource="status", user_agent="resourcequota-controller")
        return None
