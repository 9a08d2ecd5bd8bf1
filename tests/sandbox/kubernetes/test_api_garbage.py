"""Garbage collection by owner references."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everstep_sandbox.kubernetes import garbage
from everstep_sandbox.kubernetes.store import Store

MakePod = Callable[..., dict[str, Any]]


@pytest.fixture
async def collected(store: Store) -> AsyncIterator[Store]:
    """A store with its garbage collector running."""
    task = asyncio.create_task(garbage.run(store))
    await asyncio.sleep(0)
    yield store
    assert not task.done(), task.exception()
    task.cancel()


def owned(name: str, owner: dict[str, Any], *, blocks: bool = True) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


async def until_gone(store: Store, *names: str) -> None:
    subscription = store.subscribe(["configmaps", "pods"])
    async with asyncio.timeout(2):
        while any(store.peek(kind, "default", name) for kind in ("configmaps", "pods") for name in names):
            await subscription.wait()
            subscription.drain()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_dependents_follow_their_owner_in_the_background_through_generations(collected: Store) -> None:
    owner = collected.create("configmaps", "default", {"metadata": {"name": "owner"}})
    child = collected.create("configmaps", "default", owned("child", owner))
    collected.create("configmaps", "default", owned("grandchild", child))
    await settle()

    assert collected.delete("configmaps", "default", "owner") is None
    await until_gone(collected, "child", "grandchild")


async def test_a_foreground_owner_stays_until_its_blocking_dependents_are_gone(
    collected: Store, make_pod: MakePod
) -> None:
    owner = collected.create("configmaps", "default", {"metadata": {"name": "owner"}})
    pod = make_pod("child")
    pod["metadata"] = owned("child", owner)["metadata"]
    collected.create("pods", "default", pod)
    collected.bind("default", "child", "node-1")

    marked = collected.delete("configmaps", "default", "owner", propagation="Foreground")
    assert marked is not None and marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    await settle()
    deleting = collected.peek("pods", "default", "child")
    assert deleting is not None and deleting["metadata"]["deletionTimestamp"]
    assert collected.peek("configmaps", "default", "owner") is not None

    collected.delete("pods", "default", "child", grace_period_seconds=0)
    await until_gone(collected, "owner")


async def test_orphans_lose_their_owner_and_stay(collected: Store) -> None:
    owner = collected.create("configmaps", "default", {"metadata": {"name": "owner"}})
    collected.create("configmaps", "default", owned("child", owner))
    await settle()
    collected.delete("configmaps", "default", "owner", propagation="Orphan")
    await until_gone(collected, "owner")
    await settle()
    child = collected.peek("configmaps", "default", "child")
    assert child is not None and "ownerReferences" not in child["metadata"]


async def test_what_names_an_owner_that_never_was_is_collected(collected: Store) -> None:
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "0-0"}}
    collected.create("configmaps", "default", owned("child", absent))
    await until_gone(collected, "child")


async def test_a_second_owner_keeps_its_dependent(collected: Store) -> None:
    owners = [collected.create("configmaps", "default", {"metadata": {"name": name}}) for name in ("one", "two")]
    child = owned("child", owners[0])
    child["metadata"]["ownerReferences"] += owned("child", owners[1])["metadata"]["ownerReferences"]
    collected.create("configmaps", "default", child)
    collected.delete("configmaps", "default", "one")
    await settle()
    assert collected.peek("configmaps", "default", "child") is not None
    collected.delete("configmaps", "default", "two")
    await until_gone(collected, "child")


async def test_what_was_left_before_a_restart_is_collected_after_it(store: Store) -> None:
    owner = store.create("configmaps", "default", {"metadata": {"name": "owner"}})
    store.create("configmaps", "default", owned("child", owner))
    store.delete("configmaps", "default", "owner")
    task = asyncio.create_task(garbage.run(store))
    await until_gone(store, "child")
    task.cancel()


async def test_a_namespace_takes_its_contents_along(collected: Store) -> None:
    collected.create("namespaces", None, {"metadata": {"name": "short"}})
    collected.create("configmaps", "short", {"metadata": {"name": "a"}})
    collected.delete("namespaces", None, "short")
    await settle()
    assert collected.list("configmaps", "short") == []
