"""Filters, messages and preemption of the scheduler, on clusters made of plain objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from everstep_sandbox.kubernetes.scheduler import preemption
from everstep_sandbox.kubernetes.scheduler.controller import unhelpful_preemption, unschedulable_message
from everstep_sandbox.kubernetes.scheduler.filters import is_hopeless, refusals, tolerates
from everstep_sandbox.kubernetes.scheduler.quantities import pod_requests, quantity
from everstep_sandbox.kubernetes.scheduler.snapshot import Snapshot

Object = dict[str, Any]


def node(name: str, pool: str = "a", tpu: int = 4, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "spec": spec,
        "status": {"allocatable": {"google.com/tpu": str(tpu), "cpu": "8", "pods": "10"}},
    }


def pod(
    name: str, *, on: str | None = None, tpu: int = 4, priority: int = 0, labels: Object | None = None, **spec: Any
) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "labels": labels or {},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": str(tpu)}}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {},
    }


def reasons(wanted: Object, snapshot: Snapshot) -> dict[str, list[str]]:
    return {name: refusals(wanted, view, snapshot) for name, view in snapshot.nodes.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", "1"),
        ("500m", "0.5"),
        ("16Gi", str(16 * 2**30)),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("1.5", "1.5"),
        (4, "4"),
        ("1E", str(10**18)),
    ],
)
def test_quantity(text: str | int, value: str) -> None:
    assert quantity(text) == Decimal(value)


def test_quantity_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="'4 chips' is no quantity"):
        quantity("4 chips")


def test_requests_are_the_larger_of_init_and_main() -> None:
    def container(cpu: str, **more: Any) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("4"), container("1", restartPolicy="Always")],
        "containers": [container("1"), container("500m")],
    }
    assert pod_requests(spec)["cpu"] == Decimal(4)
    assert pod_requests({**spec, "initContainers": spec["initContainers"][1:]})["cpu"] == Decimal("2.5")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Object, tolerated: bool) -> None:
    assert tolerates(toleration, {"key": "k", "value": "v", "effect": "NoSchedule"}) is tolerated


def test_each_node_refuses_for_its_first_reason() -> None:
    nodes = [
        node("full"),
        node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("other", pool="b"),
        node("cordoned", unschedulable=True),
        node("fits"),
    ]
    snapshot = Snapshot.of(nodes, [pod("there", on="full")])
    found = reasons(pod("new", nodeSelector={"pool": "a"}), snapshot)
    assert found == {
        "full": ["Insufficient google.com/tpu"],
        "tainted": ["node(s) had untolerated taint(s)"],
        "other": ["node(s) didn't match Pod's node affinity/selector"],
        "cordoned": ["node(s) were unschedulable"],
        "fits": [],
    }
    del found["fits"]
    assert unschedulable_message(found) == (
        "0/4 nodes are available: 1 Insufficient google.com/tpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )
    wanted = pod("new", nodeSelector={"pool": "a"})
    hopeless = [name for name, texts in found.items() if is_hopeless(wanted, snapshot.nodes[name], texts)]
    assert hopeless == ["tainted", "other", "cordoned"]
    assert unhelpful_preemption(len(found), len(hopeless)) == (
        " no new claims to deallocate, preemption: 0/4 nodes are available: "
        "1 No preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling."
    )


def test_a_node_that_is_too_small_stays_so_without_its_pods() -> None:
    snapshot = Snapshot.of([node("small", tpu=4)], [pod("there", on="small")])
    for tpu, hopeless in ((4, False), (8, True)):
        big = pod("big", tpu=tpu)
        assert refusals(big, snapshot.nodes["small"], snapshot) == ["Insufficient google.com/tpu"]
        assert is_hopeless(big, snapshot.nodes["small"], ["Insufficient google.com/tpu"]) is hopeless


def exclusive(key: str, priority: int) -> Object:
    """Labels and affinity as JobSet's webhook gives them to a leader."""
    labels = {"job-key": key, "priority": str(priority)}
    own = [{"key": "job-key", "operator": "In", "values": [key]}]
    others = [
        {"key": "job-key", "operator": "Exists"},
        {"key": "job-key", "operator": "NotIn", "values": [key]},
        {"key": "priority", "operator": "In", "values": [str(priority)]},
    ]

    def terms(expressions: list[Object]) -> Object:
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "pool", "namespaceSelector": {}}
            ]
        }

    return {
        "labels": labels,
        "priority": priority,
        "affinity": {"podAffinity": terms(own), "podAntiAffinity": terms(others)},
    }


def test_exclusive_leaders_share_no_pool_within_one_priority() -> None:
    nodes = [node("a0"), node("a1"), node("b0", pool="b")]
    snapshot = Snapshot.of(nodes, [pod("leader-1", on="a0", **exclusive("one", 5))])
    assert reasons(pod("leader-2", **exclusive("two", 5)), snapshot) == {
        "a0": ["Insufficient google.com/tpu"],
        "a1": ["node(s) didn't match pod anti-affinity rules"],
        "b0": [],
    }
    # Another priority is not kept apart, which is what lets it take the pool over.
    assert reasons(pod("leader-3", **exclusive("three", 9)), snapshot)["a1"] == []


def test_preemption_takes_the_least_important_victims() -> None:
    nodes = [node("a0"), node("a1"), node("a2", tpu=8)]
    snapshot = Snapshot.of(
        nodes,
        [
            pod("middle", on="a0", priority=5),
            pod("low", on="a1", priority=1),
            pod("low-1", on="a2", priority=1),
            pod("low-2", on="a2", priority=1),
        ],
    )
    wanted = pod("high", priority=10)
    found = preemption.find(wanted, snapshot, reasons(wanted, snapshot))
    assert found is not None and found.node in ("a1", "a2")
    assert len(found.victims) == 1 and found.victims[0]["spec"]["priority"] == 1
    equal = pod("equal", priority=1)
    assert preemption.find(equal, snapshot, reasons(equal, snapshot)) is None


def test_no_second_preemption_while_victims_are_going() -> None:
    victim = pod("victim", on="a0", priority=1)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    wanted = pod("high", priority=10)
    wanted["status"]["nominatedNodeName"] = "a0"
    snapshot = Snapshot.of([node("a0")], [victim])
    assert preemption.ineligibility(wanted, snapshot) == (
        "not eligible due to a terminating pod on the nominated node."
    )
    assert preemption.ineligibility(pod("new", priority=10, preemptionPolicy="Never"), snapshot) == (
        "not eligible due to preemptionPolicy=Never."
    )
    assert preemption.ineligibility(pod("new", priority=10), snapshot) is None
