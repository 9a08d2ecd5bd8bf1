"""Large lists: pages of a bounded size, reduced on the way, begun again when they expire."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from everstep.clients import errors, paging
from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.paging import PageSize
from everstep.clients.resources import NAMESPACES, Resource

CONFIG_MAPS = Resource("", "v1", "configmaps")
COUNT = 120
SIZE = 8000


@pytest.fixture(scope="module")
def filled(bare_kubernetes: Any) -> Iterator[str]:
    """A namespace with more than one page of config maps."""
    name = f"pages-{uuid.uuid4().hex[:6]}"
    client: KubernetesClient = ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open()
    with client:
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for number in range(COUNT):
            metadata = {"name": f"c-{number:03d}", "labels": {"odd": str(number % 2)}}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * SIZE}}
            client.create(CONFIG_MAPS, body, name)
    yield name


def name_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


def requests(kubernetes: Any) -> int:
    import urllib.request

    with urllib.request.urlopen(f"{kubernetes.address}/_sandbox/requests", timeout=10) as answer:
        return int(json.loads(answer.read())["requests"].get("GET configmaps", 0))


@pytest.mark.sandbox
async def test_all_pages_are_read_and_only_what_is_wanted_is_kept(bare_kubernetes: Any, filled: str) -> None:
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        before = requests(bare_kubernetes)
        found, version = await client.list_reduced(CONFIG_MAPS, filled, name_of)
        assert requests(bare_kubernetes) - before >= COUNT * SIZE // paging.PAGE_BYTES
        assert found == [f"c-{number:03d}" for number in range(COUNT)]
        assert int(version) > 0
        odd, _ = await client.list_reduced(
            CONFIG_MAPS, filled, lambda item: name_of(item) if name_of(item) > "c-100" else None, labels="odd=1"
        )
        assert odd == [f"c-{number:03d}" for number in range(101, COUNT, 2)]


@pytest.mark.sandbox
async def test_a_list_ends_early_when_there_is_enough(bare_kubernetes: Any, filled: str) -> None:
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        before = requests(bare_kubernetes)
        found, _ = await client.list_reduced(CONFIG_MAPS, filled, name_of, most=1)
        assert requests(bare_kubernetes) - before == 1
        assert len(found) == paging.FIRST_PAGE


@pytest.mark.sandbox
async def test_a_list_that_expires_on_the_way_is_begun_again_without_doubles(bare_kubernetes: Any, filled: str) -> None:
    bare_kubernetes.fault(match=f"{filled}/configmaps.*continue=", status=410, times=2)
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        found, _ = await client.list_reduced(CONFIG_MAPS, filled, name_of)
    assert found == [f"c-{number:03d}" for number in range(COUNT)]


@pytest.mark.sandbox
async def test_a_list_that_always_expires_is_given_up(bare_kubernetes: Any, filled: str) -> None:
    bare_kubernetes.fault(match=f"{filled}/configmaps.*continue=", status=410, times=5)
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        with pytest.raises(errors.Unavailable, match="expired 5 times"):
            await client.list_reduced(CONFIG_MAPS, filled, name_of)
        assert len((await client.list_reduced(CONFIG_MAPS, filled, name_of))[0]) == COUNT


def test_pages_grow_and_shrink_to_their_size_in_bytes() -> None:
    size = PageSize()
    size.learn(paging.FIRST_PAGE, paging.FIRST_PAGE * 100)
    assert size.limit == paging.FIRST_PAGE * 4
    for _ in range(10):
        size.learn(size.limit, size.limit * 100)
    assert size.limit == paging.LARGEST_PAGE
    size.learn(10, 10 * paging.PAGE_BYTES)
    assert size.limit == 1
    size.learn(0, 50)
    assert size.limit == 1


async def test_large_pages_are_decoded_beside_the_event_loop() -> None:
    threads = set()

    def keep(item: dict[str, Any]) -> str:
        import threading

        threads.add(threading.current_thread() is threading.main_thread())
        return str(item["n"])

    small = json.dumps({"items": [{"n": 1}], "metadata": {"resourceVersion": "7"}}).encode()
    assert await paging.decoded(small, keep) == (["1"], {"resourceVersion": "7"}, 1)
    assert threads == {True}
    large = json.dumps({"items": [{"n": 1, "pad": "x" * paging.INLINE_BYTES}, {"n": 2}]}).encode()
    async with asyncio.timeout(10):
        assert await paging.decoded(large, keep) == (["1", "2"], {}, 2)
    assert threads == {True, False}
