"""Priority classes against a real API: made once, never changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import PRIORITY_CLASSES
from everstep.provision import priority_classes
from everstep.provision.changes import Mode
from everstep.provision.everything import provision
from everstep.provision.in_cluster.steps import priority_class_steps
from everstep.provision.site import Site
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError

pytestmark = pytest.mark.sandbox
Ensure = Callable[[dict[str, int]], list[str]]


@pytest.fixture
def client(bare_kubernetes: Any) -> Iterator[KubernetesClient]:
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"class-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def ensure(bare_kubernetes: Any, cluster_data: dict[str, Any]) -> Ensure:
    """Provisioning's step for a cluster file with these classes; returns what it has made."""

    def carry_out(priorities: dict[str, int]) -> list[str]:
        spec = ClusterSpec.model_validate({**cluster_data, "priorities": priorities})
        with Site(spec, folder=Path(), kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
            return [one["object"] for one in provision(site, priority_class_steps(site), Mode.APPLY, print).done]

    return carry_out


def test_a_class_is_made_once_and_is_never_the_default(ensure: Ensure, client: KubernetesClient, name: str) -> None:
    assert ensure({name: 1000}) == [f"PriorityClass {name}"]
    made = client.get(PRIORITY_CLASSES, name)
    assert (made["value"], made.get("globalDefault", False)) == (1000, False)
    assert ensure({name: 1000}) == []
    assert client.get(PRIORITY_CLASSES, name)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_class_that_differs_is_an_error_with_both_values_and_nothing_is_made(
    ensure: Ensure, client: KubernetesClient, name: str
) -> None:
    ensure({name: 1000})
    with pytest.raises(FindingsError, match=f"{name}: value 1000; expected value 2000"):
        ensure({f"{name}-new": 5, name: 2000})
    assert client.find(PRIORITY_CLASSES, f"{name}-new") is None


def test_a_class_that_preempts_nobody_is_an_error(ensure: Ensure, client: KubernetesClient, name: str) -> None:
    client.create(PRIORITY_CLASSES, priority_classes.desired(name, 7) | {"preemptionPolicy": "Never"})
    with pytest.raises(FindingsError, match="preemptionPolicy Never"):
        ensure({name: 7})


class Late(KubernetesClient):
    """Somebody else makes an object a moment before this client does, with this value."""

    theirs = 9

    def create(self, *arguments: Any, **options: Any) -> Any:
        resource, body = arguments
        super().create(resource, {**body, "value": self.theirs}, **options)
        return super().create(resource, body, **options)


def test_somebody_who_makes_an_equal_class_at_the_same_moment_is_no_trouble(
    client: KubernetesClient, name: str
) -> None:
    priority_classes.create(Late(client._open_client), name, 9)
    assert client.get(PRIORITY_CLASSES, name)["value"] == 9


def test_somebody_who_makes_another_class_of_that_name_at_the_same_moment_is_told(
    client: KubernetesClient, name: str
) -> None:
    with pytest.raises(FindingsError, match="value 9; expected value 8"):
        priority_classes.create(Late(client._open_client), name, 8)
