"""The waiting triggers: what they carry, when they fire, and what a kill does. Against a real API and bucket."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.module_loading import import_string

from everstep.checkpoints.layout import RunFolder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.launch import manifest
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep.watch import shared
from everstep.watch.follower import Follower, WaitEnd
from everstep.watch.sensor_triggers import CheckpointTrigger, RestoreTrigger
from everstep.watch.triggers import TrainingTrigger

pytestmark = pytest.mark.sandbox
MERGE = "application/merge-patch+json"


class World:
    """One JobSet that tests steer by hand."""

    def __init__(self, kubernetes: Any, storage: Any, bucket: str, spec: TrainingSpec) -> None:
        self.access = ClusterAccess.of_kubeconfig(kubernetes.kubeconfig)
        self.storage = StorageAccess(endpoint=storage.address)
        self.client: KubernetesClient = self.access.open()
        self.bucket = self.storage.open(bucket)
        self.name = spec.name
        self.folder = RunFolder(bucket, spec.name)
        self.jobset = self.client.create(JOBSETS, manifest.build(spec, launch=1, holder="me"), "default")
        self.uid = self.jobset["metadata"]["uid"]

    def status(self, **status: Any) -> None:
        path = JOBSETS.path("default", self.name, "status")
        self.client._request("PATCH", path, body={"status": status}, content_type=MERGE)

    def end(self, kind: str) -> None:
        self.status(
            conditions=[
                {
                    "type": kind,
                    "status": "True",
                    "reason": "R",
                    "message": "m",
                    "lastTransitionTime": "2026-11-29T10:00:00Z",
                }
            ]
        )

    def report(self, restart: int, rank: int, **more: Any) -> None:
        self.bucket.write(self.folder.attempt_node(1, restart, rank), {"rank": rank, **more}, generation=None)

    def trigger(self, **options: Any) -> TrainingTrigger:
        arguments: dict[str, Any] = {
            "cluster": self.access.as_dict(),
            "storage": self.storage.as_dict(),
            "bucket": self.bucket.name,
            "run_name": self.name,
            "namespace": "default",
            "uid": self.uid,
            "launch": 1,
            "deadline": time.time() + 60,
            "dwell": 0.0,
        }
        return TrainingTrigger(**(arguments | options))

    def follower(self, **options: Any) -> Follower:
        arguments: dict[str, Any] = {
            "access": self.access,
            "storage": self.storage,
            "bucket": self.bucket.name,
            "run": self.name,
            "namespace": "default",
            "uid": self.uid,
            "launch": 1,
            "deadline": time.time() + 60,
            "log": logging.getLogger("test"),
        }
        return Follower(**(arguments | options))


@pytest.fixture
def world(
    bare_kubernetes: Any, cloud_storage: Any, new_bucket: str, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> World:
    run_data["name"] = f"t-{uuid.uuid4().hex[:6]}"
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    return World(bare_kubernetes, cloud_storage, new_bucket, spec)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that only the follower's own fields show."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the follower has no event to wait on
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(follower: Follower) -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
    """A wait under way that has read the first state."""
    task = asyncio.create_task(follower.follow())
    try:
        await until(lambda: follower._state is not None or task.done())
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ended(task: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        return await task


def arguments_of(kind: str) -> Any:
    common: dict[str, Any] = {
        "storage": {"connection": "g", "endpoint": ""},
        "bucket": "b",
        "run_name": "lm",
        "deadline": 5.0,
        "dwell": 3.0,
    }
    cluster = ClusterAccess(name="c", connection="k").as_dict()
    if kind == "training":
        return TrainingTrigger(cluster=cluster, namespace="n", uid="u", launch=3, on_kill_policy="delete", **common)
    if kind == "checkpoint":
        return CheckpointTrigger(nodes=4, data_parallelism=2, min_step=9, poke_interval=1.5, **common)
    return RestoreTrigger(cluster=cluster, namespace="n", nodes=4, min_restart=1, poke_interval=1.5, **common)


@pytest.mark.parametrize("kind", ["training", "checkpoint", "restore"])
def test_a_trigger_survives_serialisation_whole(kind: str) -> None:
    trigger = arguments_of(kind)
    path, arguments = trigger.serialize()
    rebuilt = import_string(path)(**json.loads(json.dumps(arguments)))
    assert type(rebuilt) is type(trigger)
    assert rebuilt.serialize() == trigger.serialize()
    own = {key: value for key, value in vars(trigger).items() if not key.startswith("_")}
    assert own == {key: vars(rebuilt)[key] for key in own}


@pytest.mark.parametrize("kind", ["Completed", "Failed"])
async def test_a_run_that_had_ended_before_the_wait_is_told_even_after_the_deadline(world: World, kind: str) -> None:
    world.end(kind)
    events = [event async for event in world.trigger(deadline=time.time() - 3600).run()]
    assert [event.payload["kind"] for event in events] == [WaitEnd.ENDED]


async def test_an_end_during_the_wait_is_told_at_once(world: World) -> None:
    async with following(world.follower()) as task:
        started = time.monotonic()
        world.end("Completed")
        assert (await ended(task))["kind"] == WaitEnd.ENDED
        assert time.monotonic() - started < 2


async def test_a_deletion_and_a_replacement_are_told_as_gone(world: World) -> None:
    async with following(world.follower()) as task:
        world.client.delete(JOBSETS, world.name, "default")
        assert (await ended(task))["kind"] == WaitEnd.GONE
    assert (await world.trigger(uid="another").wait())["kind"] == WaitEnd.GONE


@pytest.mark.parametrize("expires", [False, True], ids=["goes-on", "lists-anew"])
async def test_a_run_that_is_newer_than_what_the_watch_has_seen_is_not_gone(
    world: World, bare_kubernetes: Any, expires: bool
) -> None:
    def create(name: str) -> str:
        body = world.jobset | {"metadata": {"name": name, "namespace": "default"}}
        return str(world.client.create(JOBSETS, body, "default")["metadata"]["uid"])

    other = f"{world.name}-o"
    async with following(world.follower(run=other, uid=create(other))) as first:
        # The watch is away for three seconds, and holds the run's old JobSet.
        bare_kubernetes.fault(match="default/jobsets.*watch=true", status=429, retryAfter=3, times=1)
        if expires:
            bare_kubernetes.fault(match="default/jobsets.*watch=true", status=410, times=1)
        bare_kubernetes.post("/_sandbox/faults", {"drop_watches": True})
        world.client.delete(JOBSETS, world.name, "default")
        async with following(world.follower(uid=create(world.name))) as task:
            assert not task.done()
            if expires:
                # A new list shows only that the JobSet is not there, which is news.
                world.client.delete(JOBSETS, world.name, "default")
                assert (await ended(task))["kind"] == WaitEnd.GONE
            # What the watch tells of the old JobSet when it comes back is no news.
            world.client.delete(JOBSETS, other, "default")
            assert (await ended(first))["kind"] == WaitEnd.GONE
            if not expires:
                assert not task.done()
                world.client.delete(JOBSETS, world.name, "default")
                assert (await ended(task))["kind"] == WaitEnd.GONE


async def test_the_deadline_is_a_point_in_time(world: World) -> None:
    event = await world.trigger(deadline=time.time() + 0.5).wait()
    assert event["kind"] == WaitEnd.DEADLINE
    assert "starting" in event["message"]


@pytest.fixture
def unreachable(world: World, tmp_path: Path) -> ClusterAccess:
    """A cluster at an address where nobody listens."""
    kubeconfig = tmp_path / "kubeconfig"
    text = Path(str(world.access.kubeconfig)).read_text()
    kubeconfig.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", text))
    return ClusterAccess.of_kubeconfig(kubeconfig)


async def test_a_cluster_that_never_answers_does_not_hold_the_wait_for_ever(
    world: World, unreachable: ClusterAccess
) -> None:
    follower = world.follower(access=unreachable, deadline=time.time() + 0.2, give_answer=0.5)
    event = await follower.follow()
    assert event["kind"] == WaitEnd.DEADLINE
    assert "does not answer" in event["message"]


async def test_the_first_event_waits_for_the_worker_to_go(world: World) -> None:
    world.end("Completed")
    started = time.monotonic()
    async for _ in world.trigger(dwell=1.0).run():
        break
    assert time.monotonic() - started >= 1.0


async def test_the_second_failure_of_one_kind_without_a_step_gained_ends_the_wait(world: World) -> None:
    bug = {"code": 1, "reason": "ValueError", "at": "2026-11-29T10:00:00Z"}
    world.report(0, 0, last_step=10, ended=bug)
    world.report(1, 0, last_step=10, ended=bug)
    follower = world.follower()
    async with following(follower) as task:
        world.status(restarts=1)
        await until(lambda: bool(follower._ends))
        assert not task.done()
        world.status(restarts=2)
        event = await ended(task)
    assert event["kind"] == WaitEnd.NO_PROGRESS
    assert "at step 10 without getting further" in event["message"]


async def test_failures_that_get_further_or_are_nobodys_fault_go_on(world: World) -> None:
    bug = {"code": 1, "reason": "ValueError", "at": "2026-11-29T10:00:00Z"}
    world.report(0, 0, last_step=10, ended=bug)
    world.report(1, 0, last_step=11, ended=bug)
    world.report(2, 0, last_step=11, ended=bug | {"code": 75})
    world.report(3, 0, last_step=11, ended=bug | {"code": 75})
    follower = world.follower()
    async with following(follower) as task:
        for restarts in (1, 2, 3, 4):
            world.status(restarts=restarts)
            await until(lambda seen=restarts - 1: bool(follower._ends) and follower._ends[-1].restart == seen)
        assert not task.done()


async def test_a_refusal_of_the_cluster_ends_the_wait_with_its_words(world: World, bare_kubernetes: Any) -> None:
    bare_kubernetes.fault(match="GET .*jobsets", status=403, times=1)
    event = await world.trigger().wait()
    assert event["kind"] == WaitEnd.ERROR
    assert "HTTP 403" in event["message"]


async def test_pods_that_can_never_be_made_end_the_wait_after_a_while(world: World) -> None:
    world.client._request(
        "POST",
        "/api/v1/namespaces/default/events",
        body={
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{world.name}-slice-0.1", "namespace": "default"},
            "involvedObject": {"kind": "Job", "name": f"{world.name}-slice-0", "namespace": "default"},
            "reason": "FailedCreate",
            "type": "Warning",
            "message": 'pods "x" is forbidden: no PriorityClass with name nope was found',
            # The server drops events an hour after they were last seen.
            "lastTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    )
    async with following(world.follower(look_every=0.1, give_start=0.3)) as task:
        event = await ended(task)
    assert event["kind"] == WaitEnd.NEVER_STARTS
    assert "no PriorityClass with name nope was found" in event["message"]


@pytest.mark.parametrize(("policy", "left"), [("detach", True), ("suspend", True), ("delete", False)])
async def test_a_kill_does_what_the_policy_says(world: World, policy: str, left: bool) -> None:
    await world.trigger(on_kill_policy=policy).on_kill()
    found = world.client.find(JOBSETS, world.name, "default")
    assert (found is not None) is left
    if found is not None:
        assert bool(found["spec"].get("suspend")) is (policy == "suspend")


async def test_a_kill_leaves_another_jobset_of_the_name_alone(world: World) -> None:
    await world.trigger(on_kill_policy="delete", uid="another").on_kill()
    assert world.client.find(JOBSETS, world.name, "default") is not None


async def test_cleaning_up_touches_nothing(world: World) -> None:
    trigger = world.trigger(on_kill_policy="delete")
    await trigger.cleanup()
    assert world.client.find(JOBSETS, world.name, "default") is not None


async def test_the_checkpoint_sensor_waits_for_a_complete_one_that_is_new_enough(world: World) -> None:
    trigger = CheckpointTrigger(
        storage=world.storage.as_dict(), bucket=world.bucket.name, run_name=world.name, nodes=4, data_parallelism=2,
        min_step=50, deadline=time.time() + 30, poke_interval=0.1, dwell=0.0,
    )  # fmt: skip
    digest = "D" + "ab" * 32

    def backup(name: str, step: int, nodes: int) -> None:
        for node in range(nodes):
            world.bucket._bucket.blob(f"{world.name}/{name}/{world.name}-s{step}-n{node}-w0.meta").upload_from_string(
                digest
            )
        world.bucket._bucket.blob(f"{world.name}/{name}/{digest}.data/x").upload_from_string("x")

    backup("2026-11-01_10-00", 40, 4)
    backup("2026-11-01_11-00", 60, 1)
    task = asyncio.create_task(trigger.wait())
    await asyncio.sleep(0.5)
    assert not task.done()
    backup("2026-11-01_11-00", 60, 4)
    event = await ended(task)
    assert event["result"] == {"step": 60, "tier": "backup", "name": "2026-11-01_11-00"}


async def test_the_restore_sensor_waits_for_every_node_of_the_present_attempt(world: World) -> None:
    trigger = RestoreTrigger(
        cluster=world.access.as_dict(), storage=world.storage.as_dict(), bucket=world.bucket.name, run_name=world.name,
        namespace="default", nodes=2, min_restart=1, deadline=time.time() + 30, poke_interval=0.1, dwell=0.0,
    )  # fmt: skip
    for rank in range(2):
        world.report(0, rank, restored_step=None, restored_tier="fresh")
    async with following(world.follower()) as training:
        task = asyncio.create_task(trigger.wait())
        await asyncio.sleep(0.3)
        assert len(shared._watches) == 1
        world.status(restarts=1)
        world.report(1, 0, restored_step=45, restored_tier="local")
        await asyncio.sleep(0.5)
        assert not task.done()
        world.report(1, 1, restored_step=45, restored_tier="peer")
        event = await ended(task)
        assert not training.done()
    assert event["result"] == {"launch": 1, "restart": 1, "step": 45, "tier": "peer", "tiers": {"local": 1, "peer": 1}}


async def test_a_restore_that_is_over_is_told_even_after_the_deadline(world: World) -> None:
    def trigger(min_restart: int) -> RestoreTrigger:
        return RestoreTrigger(
            cluster=world.access.as_dict(), storage=world.storage.as_dict(), bucket=world.bucket.name,
            run_name=world.name, namespace="default", nodes=1, min_restart=min_restart,
            deadline=time.time() - 3600, poke_interval=30.0, dwell=0.0,
        )  # fmt: skip

    world.report(0, 0, restored_step=45, restored_tier="local")
    assert (await asyncio.wait_for(trigger(0).wait(), 20))["kind"] == "found"
    late = await asyncio.wait_for(trigger(1).wait(), 20)
    assert late["kind"] == "deadline"
    assert "waiting for restart 1" in late["message"]


async def test_the_end_is_told_while_an_inquiry_is_still_under_way(world: World, bare_kubernetes: Any) -> None:
    async with following(world.follower()) as task:
        bare_kubernetes.fault(match=f"GET .*pods.*{world.name}", delay_ms=15000, times=1)
        world.status(restarts=1)
        world.end("Failed")
        async with asyncio.timeout(10):
            assert (await task)["kind"] == WaitEnd.ENDED


async def test_restarts_that_a_wait_missed_are_judged_one_by_one(world: World) -> None:
    bug = {"code": 1, "reason": "ValueError", "at": "2026-11-29T10:00:00Z"}
    world.report(0, 0, last_step=10, ended=bug)
    world.report(1, 0, last_step=10, ended=bug)
    async with following(world.follower()) as task:
        world.status(restarts=2)
        assert (await ended(task))["kind"] == WaitEnd.NO_PROGRESS
