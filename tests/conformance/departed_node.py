"""A run whose node is deleted at the very beginning of the suite, since its pods are collected only after a minute."""

from __future__ import annotations

from tests.conformance.api import Api
from tests.conformance.bodies import jobset
from tests.conformance.hollow_kubelet import HollowKubelet
from tests.conformance.place import Place, Recording
from tests.conformance.planes import Plane


class DepartedNode:
    """A JobSet `lm` of 2 slices x 2 hosts with a spare node, and the one of its nodes that is gone."""

    def __init__(self, plane: Plane, api: Api, kubelet: HollowKubelet) -> None:
        self.place = Place(plane, api, kubelet)
        self.place.add_nodes(5, resources={"google.com/tpu": "4"})
        body = jobset("lm", tpu=4, node_selector=self.place.only_here, max_restarts=0)
        self.place.create("jobsets", body)
        pods = self.place.wait_for_pods("lm", 4, seconds=60)
        self.node: str = pods[1]["spec"]["nodeName"]
        self.pods = Recording(self.place, "pods").__enter__()
        self.jobs = Recording(self.place, "jobs").__enter__()
        kubelet.remove_node(self.node)

    def close(self) -> None:
        self.pods.__exit__()
        self.jobs.__exit__()
        self.place.clear()
