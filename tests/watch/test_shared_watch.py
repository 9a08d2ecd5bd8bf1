"""The shared watch against a real server: nothing missed, nothing told twice, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server

from everstep.clients import errors, sharing
from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.launch import manifest
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep.watch import run_state, shared
from everstep.watch.run_state import Phase
from everstep.watch.shared import SharedWatch, subscribed

pytestmark = pytest.mark.sandbox


@pytest.fixture
def client(bare_kubernetes: Any) -> KubernetesClient:
    return ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open()


@pytest.fixture
def access(bare_kubernetes: Any) -> ClusterAccess:
    return ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig)


@pytest.fixture
def jobset(client: KubernetesClient, run_data: dict[str, Any], cluster_data: dict[str, Any]) -> dict[str, Any]:
    """A JobSet with a name of its own."""
    run_data["name"] = f"w-{uuid.uuid4().hex[:6]}"
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    return client.create(JOBSETS, manifest.build(spec, launch=1, holder="test"), "default")


def set_restarts(client: KubernetesClient, name: str, restarts: int) -> None:
    client._request(
        "PATCH",
        JOBSETS.path("default", name, "status"),
        body={"status": {"restarts": restarts}},
        content_type="application/merge-patch+json",
    )


async def collect(subscription: shared.Subscription, restarts: int) -> list[int]:
    """Return the restart counts of all states up to one."""
    seen = []
    async with asyncio.timeout(20):
        while not seen or seen[-1] != restarts:
            state = await subscription.next()
            assert state is not None
            seen.append(state.restarts)
    return seen


async def test_any_number_of_waits_share_one_watch_and_end_it(
    access: ClusterAccess, client: KubernetesClient, jobset: dict[str, Any]
) -> None:
    name = jobset["metadata"]["name"]
    async with subscribed(access, "default", name) as one:
        async with subscribed(access, "default", name) as other, subscribed(access, "default", "absent") as absent:
            assert len(shared._watches) == 1
            set_restarts(client, name, 1)
            assert (await collect(one, 1))[-1] == (await collect(other, 1))[-1] == 1
            assert await absent.next() is None
        assert len(shared._watches) == 1
        client.delete(JOBSETS, name, "default")
        async with asyncio.timeout(20):
            while (state := await one.next()) is not None:
                assert state.phase in (Phase.DELETING, Phase.STARTING)
    assert not shared._watches
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("everstep-watch")]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 410, "times": 1},
        {"status": 429, "retryAfter": 1, "times": 1},
        {"status": 500, "times": 2},
        {"reset": True, "times": 2},
        {"status": 401, "times": 1},
    ],
    ids=["410", "429", "500", "reset", "401"],
)
async def test_changes_during_a_broken_watch_are_told_once(
    access: ClusterAccess, client: KubernetesClient, jobset: dict[str, Any], bare_kubernetes: Any, fault: dict[str, Any]
) -> None:
    name = jobset["metadata"]["name"]
    watch = SharedWatch(access.open_async(), "default", silence=0.3)
    subscription = watch.subscribe(name)
    try:
        assert await collect(subscription, 0) == [0]
        bare_kubernetes.fault(match="jobsets.*watch=true", **fault)
        set_restarts(client, name, 1)
        set_restarts(client, name, 2)
        assert await collect(subscription, 2) in ([1, 2], [2])
        set_restarts(client, name, 3)
        assert await collect(subscription, 3) == [3]
    finally:
        watch.unsubscribe(subscription)
        await watch.stop()
        await watch.client.close()


async def test_history_that_was_compacted_is_listed_anew(
    access: ClusterAccess, client: KubernetesClient, jobset: dict[str, Any], bare_kubernetes: Any
) -> None:
    name = jobset["metadata"]["name"]
    watch = SharedWatch(access.open_async(), "default", silence=0.3)
    subscription = watch.subscribe(name)
    try:
        assert await collect(subscription, 0) == [0]
        set_restarts(client, name, 1)
        bare_kubernetes.post("/_sandbox/faults", {"compact": True})
        set_restarts(client, name, 2)
        assert (await collect(subscription, 2))[-1] == 2
    finally:
        watch.unsubscribe(subscription)
        await watch.stop()
        await watch.client.close()


async def test_a_refusal_reaches_every_wait_and_the_next_watch_is_new(
    access: ClusterAccess, jobset: dict[str, Any], bare_kubernetes: Any
) -> None:
    name = jobset["metadata"]["name"]
    bare_kubernetes.fault(match="GET .*jobsets", status=403, times=1)
    async with subscribed(access, "default", name) as one, subscribed(access, "default", name) as other:
        for subscription in (one, other):
            with pytest.raises(errors.Forbidden):
                async with asyncio.timeout(20):
                    await subscription.next()
        async with subscribed(access, "default", name) as late:
            async with asyncio.timeout(20):
                state = await late.next()
            assert state is not None
            assert state.name == name
    assert not shared._watches


async def test_waits_in_other_namespaces_share_the_connection(access: ClusterAccess, jobset: dict[str, Any]) -> None:
    name = jobset["metadata"]["name"]
    async with subscribed(access, "default", name) as one, subscribed(access, "elsewhere", name) as other:
        assert one.watch is not other.watch
        assert one.client is other.client
        assert await collect(one, 0) == [0]
        assert await other.next() is None
    assert not sharing._clusters


async def test_the_last_wait_ends_the_watch_even_if_it_is_cancelled_twice(
    access: ClusterAccess, jobset: dict[str, Any]
) -> None:
    watches: list[SharedWatch] = []
    told = asyncio.Event()

    async def wait() -> None:
        async with subscribed(access, "default", jobset["metadata"]["name"]) as subscription:
            watches.append(subscription.watch)
            subscription.watch.starting.add(subscription.inbox, "any", 3600.0)
            await subscription.next()
            told.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    async with asyncio.timeout(20):
        await told.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert watches[0]._task is not None
    async with asyncio.timeout(5):
        await asyncio.wait([watches[0]._task])
    assert watches[0]._task.cancelled()
    assert not shared._watches


async def test_a_wait_that_comes_later_costs_no_request(
    access: ClusterAccess, client: KubernetesClient, jobset: dict[str, Any], bare_kubernetes: Any
) -> None:
    name = jobset["metadata"]["name"]
    async with subscribed(access, "default", name) as one:
        assert await collect(one, 0) == [0]
        set_restarts(client, name, 1)
        assert await collect(one, 1) == [1]
        before = await asyncio.to_thread(reads, bare_kubernetes)
        async with subscribed(access, "default", name) as late, subscribed(access, "default", "absent") as absent:
            assert await collect(late, 1) == [1]
            assert await absent.next() is None
        assert await asyncio.to_thread(reads, bare_kubernetes) == before


async def test_a_stalled_watch_is_noticed_and_what_it_hid_is_told(
    access: ClusterAccess, client: KubernetesClient, jobset: dict[str, Any], bare_kubernetes: Any
) -> None:
    name = jobset["metadata"]["name"]
    watch = SharedWatch(access.open_async(), "default", silence=1.0)
    subscription = watch.subscribe(name)
    try:
        assert await collect(subscription, 0) == [0]
        bare_kubernetes.fault(match="jobsets.*watch=true", stall=True, times=1)
        bare_kubernetes.post("/_sandbox/faults", {"stall_watches": True})
        set_restarts(client, name, 1)
        assert await collect(subscription, 1) == [1]
    finally:
        watch.unsubscribe(subscription)
        await watch.stop()
        await watch.client.close()


async def test_another_cluster_behind_the_same_address_is_listed_anew(
    tmp_path: Path, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    run_data["name"] = "moved"
    body = manifest.build(
        TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data)), launch=1, holder="test"
    )
    with server("everstep_sandbox.kubernetes", tmp_path / "old", "--api-only") as old:
        access = ClusterAccess.of_kubeconfig(old.kubeconfig)
        with access.open() as client:
            client.create(JOBSETS, body, "default")
            for restarts in range(1, 30):
                set_restarts(client, "moved", restarts)
        watch = SharedWatch(access.open_async(), "default", silence=1.5)
        subscription = watch.subscribe("moved")
        before = await subscription.next()
    port = old.address.rpartition(":")[2]
    try:
        with server("everstep_sandbox.kubernetes", tmp_path / "new", "--api-only", "--port", port) as new:
            # An API server takes a watch from a version that it has not reached, and says nothing on it.
            with ClusterAccess.of_kubeconfig(new.kubeconfig).open() as client:
                client.create(JOBSETS, body, "default")
            async with asyncio.timeout(30):
                while (after := await subscription.next()) is None:
                    pass
        assert before is not None
        assert int(after.resource_version) < int(before.resource_version)
        assert (before.restarts, after.restarts) == (29, 0)
    finally:
        watch.unsubscribe(subscription)
        await watch.stop()
        await watch.client.close()


def test_what_is_kept_of_a_jobset_is_small(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    body = manifest.build(spec, launch=1, holder="h" * 120)
    body["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "m" * 5000}]}
    text = json.dumps(body)
    tracemalloc.start()
    states = [run_state.of_jobset(json.loads(text)) for _ in range(200)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert states[0].message == "m" * 1000
    assert size / len(states) < 4096


def reads(kubernetes: Any) -> int:
    """Count the requests that read JobSets, watches apart."""
    with urllib.request.urlopen(f"{kubernetes.address}/_sandbox/requests", timeout=10) as answer:
        counted: dict[str, int] = json.loads(answer.read())["requests"]
    return counted.get("GET jobsets", 0) - counted.get("WATCH jobsets", 0)
