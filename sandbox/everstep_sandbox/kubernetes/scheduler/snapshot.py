"""The cluster as the scheduler sees it in one pass: nodes with the pods that take their resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.scheduler.quantities import pod_requests, quantity


def priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


@dataclass(slots=True)
class NodeView:
    """A node and the pods counted on it."""

    node: Object
    pods: list[Object] = field(default_factory=list)
    used: dict[str, Decimal] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        return self.node["metadata"].get("labels") or {}

    def add(self, pod: Object) -> None:
        self.pods.append(pod)
        for name, amount in pod_requests(pod["spec"]).items():
            self.used[name] = self.used.get(name, Decimal(0)) + amount

    def without(self, removed: Iterable[Object]) -> NodeView:
        """The node as it would be without some of its pods."""
        uids = {pod["metadata"]["uid"] for pod in removed}
        view = NodeView(self.node)
        for pod in self.pods:
            if pod["metadata"]["uid"] not in uids:
                view.add(pod)
        return view

    def free(self, resource: str) -> Decimal:
        allocatable = (self.node.get("status") or {}).get("allocatable") or {}
        return quantity(allocatable.get(resource, 0)) - self.used.get(resource, Decimal(0))


@dataclass(slots=True)
class Snapshot:
    """All nodes; pods that are nominated to a node count there for pods of no higher priority."""

    nodes: dict[str, NodeView]

    @classmethod
    def of(cls, nodes: Iterable[Object], pods: Iterable[Object]) -> Snapshot:
        views = {node["metadata"]["name"]: NodeView(node) for node in nodes}
        for pod in pods:
            where = pod["spec"].get("nodeName")
            if where in views and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                views[where].add(pod)
        return cls(views)

    def replaced(self, view: NodeView) -> Snapshot:
        """The same cluster with one node seen differently."""
        return Snapshot({**self.nodes, view.name: view})

    def pods(self) -> Iterator[tuple[NodeView, Object]]:
        for view in self.nodes.values():
            for pod in view.pods:
                yield view, pod
