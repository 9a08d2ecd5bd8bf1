"""What failed and pending pods say, asked for by selectors, against a real API."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import EVENTS, PODS
from everstep.launch import labels
from everstep.watch import failed_pods as failed
from everstep.watch.failed_pods import failed_pods, has_pods
from everstep.watch.inbox import Inbox
from everstep.watch.starting import Pending, StartingRuns

pytestmark = pytest.mark.sandbox
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}


class Pods:
    """Makes pods of one run."""

    def __init__(self, kubernetes: Any) -> None:
        self.run = f"p-{uuid.uuid4().hex[:6]}"
        self.access = ClusterAccess.of_kubeconfig(kubernetes.kubeconfig)
        self.client: KubernetesClient = self.access.open()

    def make(self, number: int, *, attempt: int = 0, **status: Any) -> str:
        name = f"{self.run}-slice-0-{number}"
        own = {labels.JOBSET_NAME: self.run, labels.RESTART_ATTEMPT: str(attempt), labels.JOB_INDEX: "0"}
        spec = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "i"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": own}, "spec": spec}
        self.client.create(PODS, body, "default")
        if status:
            self.client._request(
                "PATCH",
                PODS.path("default", name, "status"),
                body={"status": status},
                content_type="application/merge-patch+json",
            )
        return name


@pytest.fixture
def pods(bare_kubernetes: Any) -> Pods:
    return Pods(bare_kubernetes)


async def names(pods: Pods, attempt: int = 0, *, count: int = 4, looks: int = 1) -> list[str]:
    async with pods.access.open_async() as client:
        found = await failed_pods(client, "default", pods.run, attempt, pods=count, looks=looks)
    return [pod.name for pod in found]


async def test_only_failed_pods_of_the_attempt_are_told(pods: Pods) -> None:
    pods.make(0, attempt=0, phase="Failed")
    wanted = pods.make(1, attempt=1, phase="Failed")
    pods.make(2, attempt=1, phase="Running")
    assert await names(pods, 1) == [wanted]
    assert await names(pods, 2) == []


async def test_a_pod_that_is_taken_away_is_told_before_it_has_failed(pods: Pods) -> None:
    pods.make(0, phase="Running")
    taken = pods.make(1, phase="Running", conditions=[DISRUPTED])
    # Also of a run that is too large for more than one look at all of its pods.
    assert await names(pods, count=5000) == [taken]


async def test_a_pod_that_fails_a_moment_later_is_waited_for(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed, "PAUSE_SECONDS", 0.05)
    name = pods.make(0, phase="Running")
    async with pods.access.open_async() as client:
        looking = asyncio.create_task(failed_pods(client, "default", pods.run, 0, pods=4, looks=200))
        await client._request(
            "PATCH",
            PODS.path("default", name, "status"),
            body={"status": {"phase": "Failed"}},
            content_type="application/merge-patch+json",
        )
        assert [pod.name for pod in await asyncio.wait_for(looking, 20)] == [name]


async def test_an_attempt_without_pods_is_known_by_one_request(pods: Pods) -> None:
    async with pods.access.open_async() as client:
        assert not await has_pods(client, "default", pods.run, 0)
        pods.make(0)
        assert await has_pods(client, "default", pods.run, 0)
        assert not await has_pods(client, "default", pods.run, 1)


async def test_one_look_tells_every_starting_run_what_its_pods_wait_for(pods: Pods, bare_kubernetes: Any) -> None:
    other = Pods(bare_kubernetes)
    pending = pods.make(0, phase="Pending")
    pods.make(1, phase="Running")
    pods.client.create(
        EVENTS,
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{other.run}.1", "namespace": "default"},
            "involvedObject": {"kind": "Job", "name": f"{other.run}-slice-0", "namespace": "default"},
            "reason": "FailedCreate",
            "type": "Warning",
            "message": "no",
        },
        "default",
    )
    one, two = Inbox(), Inbox()
    async with pods.access.open_async() as client:
        starting = StartingRuns(client, "default")
        starting.add(one, pods.run, 0.2)
        starting.add(two, other.run, 0.2)
        told, told_other = await one.take(20), await two.take(20)
        assert isinstance(told, Pending)
        assert ([pod.name for pod in told.pods], told.refusals) == ([pending], [])
        assert told_other.pods == []
        assert [event["message"] for event in told_other.refusals] == ["no"]
        starting.remove(one)
        await two.take(20)
        await two.take(20)
        with pytest.raises(TimeoutError):
            await one.take(0.01)
        await starting.stop()
