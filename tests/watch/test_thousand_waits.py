"""A thousand real waits on one shared watch, while everything that happens to a watch happens to it.

Each test has a thousand `TrainingTrigger`s under way, lets a part of their runs end during the trouble, and expects
that exactly these fire, each once and with the right kind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.watch import shared
from everstep.watch.follower import WaitEnd
from everstep.watch.triggers import TrainingTrigger

pytestmark = pytest.mark.sandbox

WAITS = 1000
PART = 60
NAMESPACE = "thousand"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
MERGE = {"Content-Type": "application/merge-patch+json"}
ENDS = ("Completed", "Failed", "deleted")


class Fleet:
    """A thousand JobSets that a test ends by hand, and their waits."""

    def __init__(self, kubernetes: Any, storage: Any, kubeconfig: Path, session: aiohttp.ClientSession) -> None:
        self.kubernetes = kubernetes
        self.kubeconfig = kubeconfig
        self.fired: dict[int, list[str]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._storage = StorageAccess(endpoint=storage.address)
        self._session = session
        self._uids: dict[int, str] = {}
        self._requests = asyncio.Semaphore(16)

    @property
    def token(self) -> str:
        """The token in the kubeconfig."""
        return str(yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]["token"])

    @token.setter
    def token(self, token: str) -> None:
        document = yaml.safe_load(self.kubeconfig.read_text())
        document["users"][0]["user"]["token"] = token
        self.kubeconfig.write_text(yaml.safe_dump(document))

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        async with (
            self._requests,
            self._session.request(method, self.kubernetes.address + path, json=body, headers=headers) as answer,
        ):
            return await answer.json()

    async def prepare(self) -> None:
        """See to it that all thousand JobSets are there and run."""
        await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        found = (await self.ask("GET", JOBSETS))["items"]
        present = {each["metadata"]["name"]: each for each in found}
        await asyncio.gather(*(self._prepare(number, present.get(name(number))) for number in range(WAITS)))

    async def _prepare(self, number: int, found: dict[str, Any] | None) -> None:
        made = found or await self.ask("POST", JOBSETS, jobset(number))
        self._uids[number] = made["metadata"]["uid"]
        if "conditions" in (made.get("status") or {}):
            await self.ask("PATCH", f"{JOBSETS}/{name(number)}/status", {"status": {"conditions": None}}, **MERGE)

    def start(self) -> None:
        """Start all waits at once, as a triggerer does after a restart."""
        for number in range(WAITS):
            self.fired[number] = []
            self.tasks[number] = asyncio.create_task(self._wait(number))

    async def _wait(self, number: int) -> None:
        trigger = TrainingTrigger(
            cluster=ClusterAccess.of_kubeconfig(self.kubeconfig).as_dict(), storage=self._storage.as_dict(),
            bucket="thousand-waits", run_name=name(number), namespace=NAMESPACE, uid=self._uids[number], launch=1,
            deadline=time.time() + 600, dwell=0.0,
        )  # fmt: skip
        async for event in trigger.run():
            self.fired[number].append(event.payload["kind"])

    async def until_told(self) -> None:
        """Wait until every wait has taken in its first state."""
        async with asyncio.timeout(20):
            while not self._is_told():  # noqa: ASYNC110 - waits have no event for that
                await asyncio.sleep(0.01)

    def _is_told(self) -> bool:
        if not shared._watches or len(self.watch._states) < WAITS:
            return False
        waits = [each for some in self.watch._subscriptions.values() for each in some]
        return len(waits) == WAITS and all(each.inbox._told is None for each in waits)

    @property
    def watch(self) -> shared.SharedWatch:
        """The one watch of all waits."""
        (watch,) = shared._watches.values()
        return watch

    async def end(self, numbers: Iterable[int]) -> None:
        """End runs, each third one in another way."""
        await asyncio.gather(*(self._end(number) for number in numbers))

    async def _end(self, number: int) -> None:
        kind = ENDS[number % 3]
        if kind == "deleted":
            await self.ask("DELETE", f"{JOBSETS}/{name(number)}")
            return
        condition = {"type": kind, "status": "True", "reason": "R", "message": "m"}
        status = {"conditions": [condition | {"lastTransitionTime": "2026-11-29T10:00:00Z"}]}
        await self.ask("PATCH", f"{JOBSETS}/{name(number)}/status", {"status": status}, **MERGE)

    async def expect_only(self, numbers: Iterable[int]) -> None:
        """Expect that exactly these waits have fired or will within a while, each once and with the right kind."""
        ended = set(numbers)
        async with asyncio.timeout(30):
            await asyncio.gather(*(self.tasks[number] for number in ended))
        # Whatever a wait was told twice would show with the next state of all that are left.
        told = {number: kinds for number, kinds in self.fired.items() if kinds}
        assert told == {
            number: [WaitEnd.GONE if ENDS[number % 3] == "deleted" else WaitEnd.ENDED] for number in sorted(ended)
        }
        assert not [number for number in range(WAITS) if number not in ended and self.tasks[number].done()]
        assert len(shared._watches) == 1

    async def reads(self) -> int:
        """Count the requests that read JobSets or pods, watches apart."""
        counted = (await self.ask("GET", "/_sandbox/requests"))["requests"]
        return sum(counted.get(f"GET {kind}", 0) - counted.get(f"WATCH {kind}", 0) for kind in ("jobsets", "pods"))

    async def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


def name(number: int) -> str:
    return f"wait-{number:04d}"


def jobset(number: int) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "python:3.11"}]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name(number), "annotations": {"everstep.dev/launch": "1", "note": "n" * 2000}},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 2, "template": {"spec": job}}]},
    }


@pytest.fixture
def fleet(
    bare_kubernetes: Any, cloud_storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Opens a thousand waits that have all been told their first state."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(bare_kubernetes.kubeconfig.read_text())

    @asynccontextmanager
    async def opened(silence: float = 60.0) -> AsyncIterator[Fleet]:
        monkeypatch.setattr(shared, "SILENCE_SECONDS", silence)
        async with aiohttp.ClientSession() as session:
            made = Fleet(bare_kubernetes, cloud_storage, kubeconfig, session)
            await made.prepare()
            made.start()
            try:
                await made.until_told()
                yield made
            finally:
                await made.ask("DELETE", "/_sandbox/faults")
                await made.stop()
        assert not shared._watches

    return opened


async def gone_as_status(fleet: Fleet) -> None:
    await fault(fleet, match=f"{NAMESPACE}/jobsets.*watch=true", status=410, times=2)
    await fault(fleet, drop_watches=True)


async def gone_as_event(fleet: Fleet) -> None:
    await fault(fleet, drop_watches="expired")


async def compacted(fleet: Fleet) -> None:
    await fault(fleet, compact=True)
    await fault(fleet, match=f"{NAMESPACE}/jobsets.*continue=", status=410, times=2)
    await fault(fleet, drop_watches="expired")


async def throttled(fleet: Fleet) -> None:
    await fault(fleet, match=f"GET .*{NAMESPACE}/jobsets.watch=true", status=429, retryAfter=1, times=2)
    await fault(fleet, drop_watches=True)


async def stalled(fleet: Fleet) -> None:
    await fault(fleet, match=f"{NAMESPACE}/jobsets.*watch=true", stall=True, times=1)
    await fault(fleet, stall_watches=True)


async def token_expired(fleet: Fleet) -> None:
    old = fleet.token
    fleet.token = "new"
    await fault(fleet, match=f"{NAMESPACE}/", status=401, token=old, times=10**9)
    await fault(fleet, drop_watches=True)


async def away(fleet: Fleet) -> None:
    await fault(fleet, match=f"GET .*{NAMESPACE}/jobsets", reset=True, times=4)
    await fault(fleet, drop_watches=True)


async def restarted(fleet: Fleet) -> None:
    # An API server that has just started knows no roles and no kinds of objects yet.
    await fault(fleet, match=f"GET .*{NAMESPACE}/jobsets", status=403, times=2)
    await fault(fleet, match=f"GET .*{NAMESPACE}/jobsets", status=404, times=1)
    await fault(fleet, drop_watches=True)


async def fault(fleet: Fleet, **asked: Any) -> None:
    await fleet.ask("POST", "/_sandbox/faults", asked)


@pytest.mark.parametrize(
    "trouble", [gone_as_status, gone_as_event, compacted, throttled, stalled, token_expired, away, restarted]
)
async def test_what_ends_during_a_trouble_is_told_once(
    fleet: Callable[..., Any], trouble: Callable[[Fleet], Awaitable[None]]
) -> None:
    async with fleet(2.0 if trouble is stalled else 60.0) as waits:
        await trouble(waits)
        await waits.end(range(PART))
        await waits.expect_only(range(PART))
        # The watch that came back is a working one.
        await waits.end(range(PART, PART + 3))
        await waits.expect_only(range(PART + 3))


async def test_a_connection_that_drops_all_the_time_loses_nothing(fleet: Callable[..., Any]) -> None:
    async with fleet() as waits:
        for first in range(0, 60, 15):
            await waits.end(range(first, first + 8))
            await fault(waits, drop_watches=True)
            await waits.end(range(first + 8, first + 15))
        await waits.expect_only(range(60))


async def test_all_that_end_at_once_fire_once_and_leave_nothing(fleet: Callable[..., Any]) -> None:
    async with fleet() as waits:
        before = await waits.reads()
        await waits.end(range(WAITS - 1))
        await waits.expect_only(range(WAITS - 1))
        assert await waits.reads() == before
        # Of what is deleted nothing is kept.
        assert len(waits.watch._states) == WAITS - len(range(2, WAITS - 1, 3))
