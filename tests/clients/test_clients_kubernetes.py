"""Both Kubernetes clients against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from everstep.clients import errors
from everstep.clients.access import ClusterAccess
from everstep.clients.resources import JOBSETS, PRIORITY_CLASSES
from everstep.clients.retrying import Backoff

pytestmark = pytest.mark.sandbox


def priority(name: str, value: int = 5) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": {"test": name[:4]}},
        "value": value,
    }


def test_objects_are_made_read_changed_listed_and_deleted(bare_kubernetes: Any) -> None:
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        for number in range(3):
            client.create(PRIORITY_CLASSES, priority(f"crud-{number}", number))
        assert client.get(PRIORITY_CLASSES, "crud-1")["value"] == 1
        client.patch(PRIORITY_CLASSES, "crud-1", {"description": "patched"})
        listed = {each["metadata"]["name"]: each for each in client.list_all(PRIORITY_CLASSES, labels="test=crud")}
        assert listed.keys() == {"crud-0", "crud-1", "crud-2"}
        assert listed["crud-1"]["description"] == "patched"
        assert client.delete(PRIORITY_CLASSES, "crud-1")
        assert not client.delete(PRIORITY_CLASSES, "crud-1")
        assert client.find(PRIORITY_CLASSES, "crud-1") is None
        assert client.version().startswith("v1.")


def test_a_name_that_is_taken_is_a_conflict_with_the_servers_words(bare_kubernetes: Any) -> None:
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        client.create(PRIORITY_CLASSES, priority("taken"))
        with pytest.raises(errors.Conflict, match="already exists") as raised:
            client.create(PRIORITY_CLASSES, priority("taken"))
        assert raised.value.reason == "AlreadyExists"


def test_a_patch_for_an_object_that_another_one_has_replaced_is_a_conflict(bare_kubernetes: Any) -> None:
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        old = client.create(PRIORITY_CLASSES, priority("replaced"))["metadata"]["uid"]
        client.delete(PRIORITY_CLASSES, "replaced")
        client.create(PRIORITY_CLASSES, priority("replaced"))
        with pytest.raises(errors.Conflict, match="another object has that name"):
            client.patch(PRIORITY_CLASSES, "replaced", {"metadata": {"uid": old}, "description": "mine"})
        assert "description" not in client.get(PRIORITY_CLASSES, "replaced")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, errors.Forbidden), (422, errors.Invalid), (404, errors.NotFound), (401, errors.Unauthenticated)],
)
def test_refusals_are_not_repeated(bare_kubernetes: Any, status: int, kind: type[Exception]) -> None:
    times = 2 if status == 401 else 1
    bare_kubernetes.fault(match="priorityclasses/refused", status=status, times=times)
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client, pytest.raises(kind):
        client.get(PRIORITY_CLASSES, "refused")


def test_an_old_token_is_refreshed_once(bare_kubernetes: Any) -> None:
    bare_kubernetes.fault(match="priorityclasses", status=401, times=1)
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        client.list_all(PRIORITY_CLASSES)


def test_passing_failures_are_sat_out_and_retry_after_is_obeyed(bare_kubernetes: Any) -> None:
    bare_kubernetes.fault(match="priorityclasses", status=429, retryAfter=1, times=1)
    bare_kubernetes.fault(match="priorityclasses", status=503, times=1)
    bare_kubernetes.fault(match="priorityclasses", reset=True, times=1)
    started = time.monotonic()
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        client.list_all(PRIORITY_CLASSES)
    assert time.monotonic() - started >= 1.0


async def test_the_asynchronous_client_does_the_same(bare_kubernetes: Any) -> None:
    bare_kubernetes.fault(match="priorityclasses", status=401, times=1)
    bare_kubernetes.fault(match="priorityclasses", status=503, times=1)
    bare_kubernetes.fault(match="priorityclasses", reset=True, times=1)
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        items, version = await client.list_all(PRIORITY_CLASSES)
        assert int(version) > 0
        assert any(each["metadata"]["name"] == "system-node-critical" for each in items)
        with pytest.raises(errors.NotFound):
            await client.get(JOBSETS, "absent", "default")
        bare_kubernetes.fault(match="jobsets", status=403, times=1)
        with pytest.raises(errors.Forbidden):
            await client.get(JOBSETS, "absent", "default")


async def test_an_unreachable_cluster_is_given_up_after_a_while(tmp_path: Any) -> None:
    import yaml

    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    client = ClusterAccess.of_kubeconfig(kubeconfig).open_async()
    client._backoff = Backoff(first=0.01, longest=0.05, give_up_after=0.3)
    async with client:
        with pytest.raises(errors.Unavailable, match="GET /apis/scheduling"):
            await client.get(PRIORITY_CLASSES, "any")


async def test_a_silent_watch_is_noticed(bare_kubernetes: Any) -> None:
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        _, version = await client.list_all(JOBSETS, "default")
        with pytest.raises(errors.Unavailable, match="nothing came"):
            async with client.watch(JOBSETS, "default", version, silence=0.2) as events:
                async with asyncio.timeout(10):
                    async for _ in events:
                        pass


async def test_a_version_that_is_too_old_is_gone(bare_kubernetes: Any) -> None:
    bare_kubernetes.fault(match="jobsets.*watch=true", status=410, times=1)
    async with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open_async() as client:
        _, version = await client.list_all(JOBSETS, "default")
        with pytest.raises(errors.Gone):
            async with client.watch(JOBSETS, "default", version, silence=5) as events:
                async for _ in events:
                    break
        with contextlib.suppress(errors.RemoteError):
            await client.refresh()
