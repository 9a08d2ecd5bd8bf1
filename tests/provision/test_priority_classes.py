"""Priority classes against a real API: made once, never changed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import PRIORITY_CLASSES
from everstep.provision import priority_classes
from everstep.spec.findings import FindingsError

pytestmark = pytest.mark.sandbox


@pytest.fixture
def client(bare_kubernetes: Any) -> KubernetesClient:
    return ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open()


@pytest.fixture
def name() -> str:
    return f"class-{uuid.uuid4().hex[:6]}"


def test_a_class_is_made_once_and_is_never_the_default(client: KubernetesClient, name: str) -> None:
    assert priority_classes.ensure(client, {name: 1000}) == {name: "created"}
    made = client.get(PRIORITY_CLASSES, name)
    assert (made["value"], made.get("globalDefault", False)) == (1000, False)
    assert priority_classes.ensure(client, {name: 1000}) == {name: "unchanged"}
    assert client.get(PRIORITY_CLASSES, name)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_class_that_differs_is_an_error_with_both_values_and_nothing_is_made(
    client: KubernetesClient, name: str
) -> None:
    priority_classes.ensure(client, {name: 1000})
    with pytest.raises(FindingsError, match=f"{name}: value 1000; expected value 2000"):
        priority_classes.ensure(client, {f"{name}-new": 5, name: 2000})
    assert client.find(PRIORITY_CLASSES, f"{name}-new") is None


def test_a_class_that_preempts_nobody_is_an_error(client: KubernetesClient, name: str) -> None:
    client.create(PRIORITY_CLASSES, priority_classes.desired(name, 7) | {"preemptionPolicy": "Never"})
    with pytest.raises(FindingsError, match="preemptionPolicy Never"):
        priority_classes.ensure(client, {name: 7})


def test_somebody_who_makes_an_equal_class_at_the_same_moment_is_no_trouble(
    client: KubernetesClient, name: str, bare_kubernetes: Any
) -> None:
    class Late(KubernetesClient):
        def create(self, *arguments: Any, **options: Any) -> Any:
            client.create(*arguments, **options)
            return super().create(*arguments, **options)

    assert priority_classes.ensure(Late(client._open_client), {name: 9}) == {name: "unchanged"}
