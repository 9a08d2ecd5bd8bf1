"""A namespace with nodes of its own: what one test does in it, and how it waits."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.conformance.api import MERGE, Api, Object, Refusal, path_of
from tests.conformance.bodies import COMPLETION_INDEX, JOB_INDEX, JOBSET_NAME, POOL_LABEL, RESTART_ATTEMPT
from tests.conformance.hollow_kubelet import HollowKubelet
from tests.conformance.planes import Plane

OWNED_BY = "conformance.everstep.dev/test"

Objects = dict[str, Object]

_RECORDING_SECONDS = 240.0


class Place:
    """Objects are named by plural and name; waits are watches."""

    def __init__(self, plane: Plane, api: Api, kubelet: HollowKubelet) -> None:
        self.plane, self.api, self.kubelet = plane, api, kubelet
        self.name = f"conformance-{uuid.uuid4().hex[:8]}"
        self.nodes: list[str] = []
        self._priorities: dict[str, str] = {}
        api.create(path_of("namespaces"), {"metadata": {"name": self.name}})
        # Pods are refused until the namespace has the service account that they run as.
        self.wait("serviceaccounts", lambda found: "default" in found)

    def clear(self) -> None:
        """Takes away what the test made, without waiting for the namespace to be empty."""
        for held in ("jobsets", "jobs", "configmaps"):
            for item in self.list(held):
                if item["metadata"].get("finalizers"):
                    self._quietly(
                        "PATCH", self.path(held, item["metadata"]["name"]), {"metadata": {"finalizers": None}}
                    )
        self._quietly("DELETE", path_of("namespaces", None, self.name))
        for kind in ("jobsets", "pods"):
            self._quietly("DELETE", self.path(kind), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        for item in self.list("pods"):
            if item["metadata"].get("finalizers"):
                self._quietly("PATCH", self.path("pods", item["metadata"]["name"]), {"metadata": {"finalizers": None}})
        for node in self.nodes:
            self.kubelet.remove_node(node)
        for priority in self._priorities.values():
            self._quietly("DELETE", path_of("priorityclasses", None, priority))

    def _quietly(self, method: str, path: str, body: Object | None = None) -> None:
        try:
            self.api.request(method, path, body, content_type=MERGE if method == "PATCH" else "application/json")
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                raise

    # Nodes and priorities

    def add_nodes(
        self,
        count: int,
        *,
        pool: str = "pool",
        resources: dict[str, str] | None = None,
        taints: list[Object] | None = None,
        **labels: str,
    ) -> list[str]:
        """Makes Ready nodes that only pods with `self.only_here` or their pool's label are meant for."""
        made = [f"{self.name}-{pool}-{len(self.nodes) + index}" for index in range(count)]
        for name in made:
            marks = {OWNED_BY: self.name, POOL_LABEL: f"{self.name}-{pool}", **labels}
            self.kubelet.add_node(name, marks, resources or {}, taints or [])
        self.nodes += made
        return made

    @property
    def only_here(self) -> dict[str, str]:
        """The node selector of this test's nodes."""
        return {OWNED_BY: self.name}

    def priority(self, name: str, value: int) -> str:
        """The name of a PriorityClass with this value, made for the test."""
        if name not in self._priorities:
            made = f"{self.name}-{name}"
            self.api.create(path_of("priorityclasses"), {"metadata": {"name": made}, "value": value})
            self._priorities[name] = made
        return self._priorities[name]

    # Objects

    def path(self, plural: str, name: str | None = None, subresource: str | None = None) -> str:
        return path_of(plural, self.name, name, subresource)

    def create(self, plural: str, body: Object, **query: Any) -> Object:
        return self.api.create(self.path(plural), body, **query)

    def get(self, plural: str, name: str) -> Object:
        return self.api.get(self.path(plural, name))

    def find(self, plural: str, name: str) -> Object | None:
        return self.api.find(self.path(plural, name))

    def list(self, plural: str, **query: Any) -> list[Object]:
        return self.api.items(self.path(plural), **query)

    def patch(self, plural: str, name: str, body: Any, content_type: str = MERGE, **query: Any) -> Object:
        return self.api.patch(self.path(plural, name), body, content_type, **query)

    def delete(self, plural: str, name: str, **options: Any) -> Object:
        return self.api.delete(self.path(plural, name), **options)

    def version(self, plural: str) -> str:
        """From where a watch sees everything that is still to come."""
        return str(self.api.get(self.path(plural), limit=1)["metadata"]["resourceVersion"])

    # Waits

    def wait(self, plural: str, holds: Callable[[Objects], bool], seconds: float = 15.0, **query: Any) -> Objects:
        """Waits until `holds` of all objects of a kind, by name."""
        return self.api.wait(self.path(plural), holds, seconds * self.plane.slowness, **query)

    def wait_for(self, plural: str, name: str, holds: Callable[[Object], bool], seconds: float = 15.0) -> Object:
        """Waits until one object is there and `holds` of it."""
        found = self.wait(
            plural, lambda objects: name in objects and holds(objects[name]), seconds, fieldSelector=_named(name)
        )
        return found[name]

    def wait_gone(self, plural: str, name: str, seconds: float = 15.0) -> None:
        self.wait(plural, lambda objects: not objects, seconds, fieldSelector=_named(name))

    def wait_for_pods(self, jobset: str, count: int, attempt: int = 0, seconds: float = 20.0) -> Sequence[Object]:
        """Waits until just so many pods of an attempt are there and run; returns them by slice and index."""

        def all_run(found: Objects) -> bool:
            return len(found) == count and all(
                attempt_of(pod) == attempt and phase(pod) == "Running" and not is_going(pod) for pod in found.values()
            )

        found = self.wait("pods", all_run, seconds, labelSelector=f"{JOBSET_NAME}={jobset}")
        return sorted(found.values(), key=lambda pod: (slice_of(pod), index_of(pod)))

    def wait_for_end(self, jobset: str, seconds: float = 20.0) -> Object:
        """Waits until a JobSet is Completed or Failed."""
        return self.wait_for("jobsets", jobset, lambda found: bool(holding(found) & {"Completed", "Failed"}), seconds)

    def wait_for_event(self, reason: str, about: str | None = None, seconds: float = 15.0) -> Object:
        """Waits for an event with this reason, about an object whose name starts so."""

        def matching(found: Objects) -> list[Object]:
            return [event for event in found.values() if event["involvedObject"]["name"].startswith(about or "")]

        found = self.wait("events", lambda all_: bool(matching(all_)), seconds, fieldSelector=f"reason={reason}")
        return matching(found)[0]

    def record(self, plural: str) -> Recording:
        """Records every change of a kind from now on; use as a context manager."""
        return Recording(self, plural)

    def generic(self, text: str) -> str:
        """A message without what is new at every run: the namespace, and the random ends of pods' names."""
        return re.sub(r"(-\d+-\d+)-[a-z0-9]{5}\b", r"\1-*", text.replace(self.name, "NS"))


class Recording:
    """The events of a watch, in the order in which they came."""

    def __init__(self, place: Place, plural: str) -> None:
        self._place, self._plural = place, plural
        self.events: list[Object] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._record, daemon=True, name=f"recording of {plural}")

    def __enter__(self) -> Recording:
        version = self._place.version(self._plural)
        self._stream = self._place.api.watch(self._place.path(self._plural), version, _RECORDING_SECONDS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.cut()
        self._thread.join(5)

    def wait(self, holds: Callable[[list[Object]], bool], seconds: float = 15.0) -> list[Object]:
        """Waits until `holds` of the events so far; returns them. Raises AssertionError."""
        deadline = time.monotonic() + seconds * self._place.plane.slowness
        with self._news:
            while not holds(self.events):
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    told = [(event["type"], event["object"]["metadata"]["name"]) for event in self.events]
                    raise AssertionError(f"recording of {self._plural}: not within {seconds:g} s; so far {told}")
            return list(self.events)

    def _record(self) -> None:
        with self._stream as events:
            for event in events:
                with self._news:
                    self.events.append(event)
                    self._news.notify_all()


def _named(name: str) -> str:
    return f"metadata.name={name}"


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_going(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def attempt_of(obj: Object) -> int:
    return int(obj["metadata"]["labels"][RESTART_ATTEMPT])


def slice_of(pod: Object) -> int:
    return int(pod["metadata"]["labels"][JOB_INDEX])


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][COMPLETION_INDEX])


def conditions(obj: Object) -> dict[str, Object]:
    return {item["type"]: item for item in (obj.get("status") or {}).get("conditions") or ()}


def holding(obj: Object) -> set[str]:
    """The types of the conditions that are True."""
    return {kind for kind, item in conditions(obj).items() if item["status"] == "True"}


def essence(condition: Object) -> tuple[str, str, str]:
    """(status, reason, message) of a condition."""
    return str(condition["status"]), str(condition.get("reason", "")), str(condition.get("message", ""))
