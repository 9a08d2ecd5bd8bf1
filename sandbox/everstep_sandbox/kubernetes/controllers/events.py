"""Records events; one that repeats raises the count of the first."""

from __future__ import annotations

import secrets

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.objects import Object, timestamp
from everstep_sandbox.kubernetes.store import Store

_REMEMBERED = 2000


class EventRecorder:
    """Events of one component.

    Most components write events as core/v1 has them: with first and last time and a count. The scheduler writes them
    as events.k8s.io/v1 has them (`as_series`): with the time of the event, and a series once it repeats.
    """

    def __init__(self, store: Store, component: str, *, as_series: bool = False) -> None:
        self._store = store
        self._component = component
        self._as_series = as_series
        self._known: dict[tuple[str, str, str, str], tuple[str, str]] = {}

    def record(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Records an event about an object; `kind` is Normal or Warning."""
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        key = (meta["uid"], kind, reason, message)
        if key in self._known and self._count_again(*self._known[key]):
            return
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
                **self._times(),
            },
            user_agent=self._component,
        )
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (namespace, stored["metadata"]["name"])

    def _times(self) -> Object:
        now = timestamp()
        if self._as_series:
            return {
                "eventTime": now.replace("Z", ".000000Z"),
                "firstTimestamp": None,
                "lastTimestamp": None,
                "source": {},
                "action": "Scheduling",
                "reportingComponent": self._component,
                "reportingInstance": f"{self._component}-sandbox",
            }
        return {
            "eventTime": None,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }

    def _count_again(self, namespace: str, name: str) -> bool:
        event = self._store.peek("events", namespace, name)
        if event is None:
            return False
        try:
            self._store.patch("events", namespace, name, self._repeated(event), user_agent=self._component)
        except ApiError:
            return False
        return True

    def _repeated(self, event: Object) -> Object:
        now = timestamp()
        if not self._as_series:
            return {"count": event.get("count", 1) + 1, "lastTimestamp": now}
        count = (event.get("series") or {}).get("count", 1) + 1
        return {"series": {"count": count, "lastObservedTime": now.replace("Z", ".000000Z")}}
