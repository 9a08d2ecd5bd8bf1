"""Credentials that expire while requests and watches are under way."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.clients import errors
from everstep.clients.access import ClusterAccess
from everstep.clients.connection import Connections
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import PRIORITY_CLASSES

pytestmark = pytest.mark.sandbox


@pytest.fixture
def expiring(bare_kubernetes: Any, tmp_path: Path) -> ClusterAccess:
    """A kubeconfig whose user runs a program for each token: first-…, second-…, and so on."""
    counter = tmp_path / "count"
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        f"import json, pathlib\n"
        f"counter = pathlib.Path({os.fspath(counter)!r})\n"
        f"count = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        f"counter.write_text(str(count))\n"
        f"status = {{'token': f'{tmp_path.name}-{{count}}'}}\n"
        f"print(json.dumps({{'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', "
        f"'status': status}}))\n"
    )
    document = yaml.safe_load(bare_kubernetes.kubeconfig.read_text())
    document["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [os.fspath(plugin)],
            "interactiveMode": "Never",
        }
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    return ClusterAccess.of_kubeconfig(kubeconfig)


def expire(kubernetes: Any, token: str) -> None:
    kubernetes.fault(match="priorityclasses", status=401, token=token, times=10**9)


def create(kubernetes: Any, name: str) -> None:
    client: KubernetesClient = ClusterAccess.of_kubeconfig(kubernetes.kubeconfig).open()
    with client:
        client.create(
            PRIORITY_CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": 1,
            },
        )


async def test_an_expired_token_is_renewed_for_requests_and_spares_the_watch(
    expiring: ClusterAccess, bare_kubernetes: Any, tmp_path: Path
) -> None:
    async with expiring.open_async() as client, asyncio.timeout(20):
        _, version = await client.list_all(PRIORITY_CLASSES)
        async with client.watch(PRIORITY_CLASSES, None, version, silence=10) as events:
            for count in (1, 2):
                expire(bare_kubernetes, f"{tmp_path.name}-{count}")
                await client.list_all(PRIORITY_CLASSES)
            name = f"renewed-{uuid.uuid4().hex[:6]}"
            await asyncio.to_thread(create, bare_kubernetes, name)
            async for event in events:
                assert event["object"]["metadata"]["name"] == name
                break
    assert (tmp_path / "count").read_text() == "3"


async def test_a_watch_is_opened_with_a_new_token_after_one_refusal(
    expiring: ClusterAccess, bare_kubernetes: Any, tmp_path: Path
) -> None:
    async with expiring.open_async() as client, asyncio.timeout(20):
        _, version = await client.list_all(PRIORITY_CLASSES)
        expire(bare_kubernetes, f"{tmp_path.name}-1")
        with pytest.raises(errors.Unauthenticated):
            async with client.watch(PRIORITY_CLASSES, None, version, silence=5):
                pass
        async with client.watch(PRIORITY_CLASSES, None, version, silence=5):
            pass
    assert (tmp_path / "count").read_text() == "2"


async def test_many_that_are_refused_at_once_renew_once(
    expiring: ClusterAccess, bare_kubernetes: Any, tmp_path: Path
) -> None:
    async with expiring.open_async() as client, asyncio.timeout(30):
        await client.list_all(PRIORITY_CLASSES)
        expire(bare_kubernetes, f"{tmp_path.name}-1")
        await asyncio.gather(*(client.find(PRIORITY_CLASSES, "absent") for _ in range(50)))
    assert (tmp_path / "count").read_text() == "2"


class Opener:
    """Counts the connections of a client library that are open."""

    def __init__(self) -> None:
        self.opened = 0
        self.open_now = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[object]:
        await asyncio.sleep(0)
        self.opened += 1
        self.open_now += 1
        try:
            yield object()
        finally:
            self.open_now -= 1


async def test_a_thousand_users_open_one_connection_and_the_last_one_closes_a_renewed_one() -> None:
    opener = Opener()
    connections = Connections(opener)

    async def use() -> object:
        async with connections.using() as connection:
            return connection

    used = await asyncio.gather(*(use() for _ in range(1000)))
    assert opener.opened == 1
    async with connections.using() as old:
        assert old is used[0]
        await connections.renew(old)
        await connections.renew(old)
        assert opener.open_now == 1
        async with connections.using() as new:
            assert new is not old
            assert opener.open_now == 2
    assert opener.open_now == 1
    await connections.close()
    assert (opener.opened, opener.open_now) == (2, 0)


async def test_a_connection_that_cant_be_opened_is_tried_again_by_the_next_one() -> None:
    failures = [OSError("not yet")]

    @asynccontextmanager
    async def open_client() -> AsyncIterator[object]:
        if failures:
            raise failures.pop()
        yield object()

    connections = Connections(open_client)
    with pytest.raises(OSError, match="not yet"):
        async with connections.using():
            pass
    async with connections.using() as connection:
        assert connection.client is not None
    await connections.close()
