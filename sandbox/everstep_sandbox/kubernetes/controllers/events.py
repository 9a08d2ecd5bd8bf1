"""Records events; one that repeats raises the count of the first."""

from __future__ import annotations

import secrets

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.objects import Object, timestamp
from everstep_sandbox.kubernetes.store import Store

_REMEMBERED = 2000


class EventRecorder:
    """Events of one component."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._known: dict[tuple[str, str, str, str], tuple[str, str]] = {}

    def record(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Records an event about an object; `kind` is Normal or Warning."""
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        key = (meta["uid"], kind, reason, message)
        if key in self._known and self._count_again(*self._known[key]):
            return
        now = timestamp()
        stored = self._store.create(
            "events",
            namespace,
            {
                "metadata": {"name": f"{meta['name']}.{secrets.token_hex(8)}", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": about["apiVersion"],
                    "kind": about["kind"],
                    "name": meta["name"],
                    "namespace": meta.get("namespace", ""),
                    "uid": meta["uid"],
                    "resourceVersion": meta.get("resourceVersion", ""),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "reportingInstance": "",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
            user_agent=self._component,
        )
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (namespace, stored["metadata"]["name"])

    def _count_again(self, namespace: str, name: str) -> bool:
        event = self._store.peek("events", namespace, name)
        if event is None:
            return False
        try:
            self._store.patch(
                "events",
                namespace,
                name,
                {
                    "count": event.get("count", 1) + 1,
                    "lastTimestamp": timestamp(),
                },
                user_agent=self._component,
            )
        except ApiError:
            return False
        return True
