"""Launching against a real API and bucket: created once, attached, replaced, refused."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep.checkpoints.layout import RunFolder
from everstep.clients.resources import JOBSETS
from everstep.launch import labels
from everstep.launch.decision import Action
from everstep.launch.lease import LeaseHeldError, LeaseKeeper
from everstep.spec.findings import FindingsError, error, raise_on_errors

pytestmark = pytest.mark.sandbox


def writes(server: Any, name: str) -> list[str]:
    """Return the verbs of all committed writes to a JobSet, from the API's own log."""
    lines = (server.directory / "writes.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [each["verb"] for each in entries if each["resource"] == "jobsets" and each["name"] == name]


def test_a_launch_creates_once_and_a_retry_attaches(world: Any, bare_kubernetes: Any) -> None:
    first = world.launcher().launch()
    assert (first.action, first.launch) == (Action.CREATE, 1)
    again = world.launcher().launch()
    assert (again.action, again.state.uid) == (Action.ATTACH, first.state.uid)
    assert writes(bare_kubernetes, world.spec.name).count("create") == 1
    record = json.loads(world.bucket.read(RunFolder(world.bucket.name, world.spec.name).run_record).body)
    assert (record["launch"], record["nodes"], record["data_parallelism"]) == (1, 4, 2)
    lease = json.loads(world.bucket.read(RunFolder(world.bucket.name, world.spec.name).lease).body)
    assert lease["holder"] == "me"
    assert lease["jobset"] == {"namespace": "default", "name": world.spec.name, "uid": first.state.uid}


def test_of_two_airflows_one_is_refused(world: Any, bare_kubernetes: Any) -> None:
    both = threading.Barrier(2)

    def launch(holder: str) -> str:
        launcher = world.launcher(holder)
        both.wait()
        try:
            launcher.launch()
        except FindingsError as failure:
            return str(failure)
        return "launched"

    with ThreadPoolExecutor(2) as pool:
        told = sorted(pool.map(launch, ["airflow-one", "airflow-two"]), key=lambda text: text != "launched")
    assert told[0] == "launched"
    assert "held by airflow-" in told[1]
    assert "wait for that run to end" in told[1]
    assert writes(bare_kubernetes, world.spec.name).count("create") == 1


def test_a_failed_jobset_is_replaced_and_the_lineage_kept(world: Any) -> None:
    first = world.launcher().launch()
    folder = RunFolder(world.bucket.name, world.spec.name)
    lineage = json.loads(world.bucket.read(folder.run_record).body)["lineage"]
    world.end("Failed")
    second = world.launcher().launch()
    assert (second.action, second.launch) == (Action.CREATE, 2)
    assert second.state.uid != first.state.uid
    record = json.loads(world.bucket.read(folder.run_record).body)
    assert (record["lineage"], record["launch"]) == (lineage, 2)


def test_a_completed_jobset_gives_its_verdict_to_its_own_holder_only(world: Any) -> None:
    first = world.launcher().launch()
    world.end("Completed")
    again = world.launcher().launch()
    assert (again.action, again.state.uid) == (Action.TAKE_VERDICT, first.state.uid)
    world.launcher().release()
    other = world.launcher("next DAG run").launch()
    assert (other.action, other.launch) == (Action.CREATE, 2)


def test_somebody_elses_live_run_is_refused_even_when_its_lease_has_expired(world: Any) -> None:
    world.launcher().launch()
    folder = RunFolder(world.bucket.name, world.spec.name)
    stored = world.bucket.read(folder.lease)
    expired = {**json.loads(stored.body), "expires": "2026-01-01T00:00:00.000Z"}
    world.bucket.write(folder.lease, expired, generation=stored.generation)
    with pytest.raises(FindingsError, match="launched by me"):
        world.launcher("other").launch()
    world.cluster.delete(JOBSETS, world.spec.name, "default")
    assert world.launcher("other").launch().action is Action.CREATE


def test_a_lease_without_jobset_binds_until_it_expires(world: Any) -> None:
    folder = RunFolder(world.bucket.name, world.spec.name)
    LeaseKeeper(world.bucket, world.cluster, world.spec.name, "me").acquire("launch")
    with pytest.raises(LeaseHeldError, match="valid until"):
        world.launcher("other").launch()
    assert world.jobset() is None
    stored = world.bucket.read(folder.lease)
    expired = {**json.loads(stored.body), "expires": "2026-01-01T00:00:00.000Z"}
    world.bucket.write(folder.lease, expired, generation=stored.generation)
    assert world.launcher("other").launch().action is Action.CREATE


@pytest.mark.parametrize("end", ["deleted", "failed", "stopped"])
def test_a_lease_whose_jobset_is_over_binds_nobody(world: Any, end: str) -> None:
    first = world.launcher().launch()
    if end == "deleted":
        world.cluster.delete(JOBSETS, world.spec.name, "default")
    elif end == "failed":
        world.end("Failed")
    else:
        world.launcher().stop(first.state, "a user killed the task")
    assert world.launcher("other").launch().launch == 2


def test_an_object_of_somebody_else_is_left_alone_and_no_lease_taken(world: Any) -> None:
    from everstep.launch import manifest

    body = manifest.build(world.spec, launch=1, holder="x")
    del body["metadata"]["labels"][labels.RUN]
    world.cluster.create(JOBSETS, body, "default")
    with pytest.raises(FindingsError, match="an object that Everstep did not launch"):
        world.launcher().launch()
    assert world.bucket.read(RunFolder(world.bucket.name, world.spec.name).lease) is None


def test_a_changed_spec_is_refused_on_a_live_run_or_replaced_when_asked(world: Any) -> None:
    world.launcher().launch()
    world.spec = world.spec.model_copy(update={"final_step": 200}).on(world.spec.cluster_spec)
    with pytest.raises(FindingsError, match="another spec than the run file has now"):
        world.launcher().launch()
    assert world.launcher(replace_changed=True).launch().launch == 2


def test_what_preflight_refuses_is_not_created_and_the_lease_is_given_back(world: Any) -> None:
    def refuse() -> None:
        raise_on_errors("no", [error("bucket", "gone")])

    with pytest.raises(FindingsError, match="gone"):
        world.launcher(before_create=refuse).launch()
    assert world.jobset() is None
    assert world.launcher("other").launch().action is Action.CREATE


def test_a_creation_whose_answer_was_lost_is_recognised(world: Any, bare_kubernetes: Any) -> None:
    class Forgetful(type(world.cluster)):  # type: ignore[misc]
        def create(self, *arguments: Any, **options: Any) -> Any:
            super().create(*arguments, **options)
            return super().create(*arguments, **options)

    world.cluster = Forgetful(world.cluster._open_client)
    assert world.launcher().launch().launch == 1
    assert writes(bare_kubernetes, world.spec.name).count("create") == 1


def test_two_tries_of_one_task_at_the_same_moment_stand_for_one_jobset(world: Any, bare_kubernetes: Any) -> None:
    both = threading.Barrier(2)

    def launch(_: int) -> str:
        launcher = world.launcher("one-task")
        both.wait()
        return str(launcher.launch().state.uid)

    with ThreadPoolExecutor(2) as pool:
        uids = set(pool.map(launch, range(2)))
    assert uids == {world.jobset()["metadata"]["uid"]}
    assert writes(bare_kubernetes, world.spec.name).count("create") == 1
    lease = json.loads(world.bucket.read(RunFolder(world.bucket.name, world.spec.name).lease).body)
    assert lease["jobset"]["uid"] in uids


def test_a_launch_that_lost_its_lease_while_it_created_takes_its_jobset_back(world: Any, bare_kubernetes: Any) -> None:
    lease = RunFolder(world.bucket.name, world.spec.name).lease

    class Slow(type(world.cluster)):  # type: ignore[misc]
        def create(self, *arguments: Any, **options: Any) -> Any:
            made = super().create(*arguments, **options)
            stored = world.bucket.read(lease)
            taken = {**json.loads(stored.body), "holder": "another cluster's Airflow", "fencing": 2}
            world.bucket.write(lease, taken, generation=stored.generation)
            return made

    world.cluster = Slow(world.cluster._open_client)
    with pytest.raises(LeaseHeldError, match="taken over by another cluster's Airflow"):
        world.launcher().launch()
    assert world.jobset() is None
    assert json.loads(world.bucket.read(lease).body)["holder"] == "another cluster's Airflow"


def test_a_stopped_jobset_is_replaced_by_the_next_launch(world: Any) -> None:
    first = world.launcher().launch()
    world.launcher().stop(first.state, "no progress")
    jobset = world.jobset()
    assert jobset["spec"]["suspend"] is True
    assert world.launcher().launch().launch == 2
