"""Ranks: kept over restarts wherever it can be, given to new nodes, assigned anew where nothing else is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from everstep_sandbox.checkpointing.job_shapes import job_shape
from everstep_sandbox.checkpointing.rank_server import JobShape, RankServer
from everstep_sandbox.checkpointing.ranks import NodeReport, assign
from everstep_sandbox.checkpointing.registry import Registry


def reports(*nodes: tuple[str, str, int | None]) -> list[NodeReport]:
    """(node, pool, remembered rank), in the JobSet's order."""
    return [NodeReport(node, pool, cached, number) for number, (node, pool, cached) in enumerate(nodes)]


def test_a_first_attempt_follows_the_jobset() -> None:
    found = assign(reports(("a", "x", None), ("b", "x", None), ("c", "y", None), ("d", "y", None)), 2, 2)
    assert (found.ranks, found.invalidates) == ({"a": 0, "b": 1, "c": 2, "d": 3}, False)


def test_remembered_ranks_win_over_the_jobset() -> None:
    found = assign(reports(("c", "y", 2), ("d", "y", 3), ("a", "x", 0), ("b", "x", 1)), 2, 2)
    assert (found.ranks, found.invalidates) == ({"a": 0, "b": 1, "c": 2, "d": 3}, False)


def test_a_new_node_of_a_known_pool_gets_the_hole() -> None:
    found = assign(reports(("c", "y", 2), ("d", "y", 3), ("new", "x", None), ("b", "x", 1)), 2, 2)
    assert (found.ranks, found.invalidates) == ({"new": 0, "b": 1, "c": 2, "d": 3}, False)


def test_an_unused_pool_takes_the_whole_missing_slice() -> None:
    """A hot swap: slice 0 moved to pool z while the survivors became index 0 of the JobSet."""
    found = assign(reports(("c", "y", 2), ("d", "y", 3), ("e", "z", None), ("f", "z", None)), 2, 2)
    assert (found.ranks, found.invalidates) == ({"c": 2, "d": 3, "e": 0, "f": 1}, False)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([("c", "y", 1), ("d", "y", 1), ("a", "x", None), ("b", "x", None)], id="one rank twice"),
        pytest.param([("c", "y", 3), ("d", "y", 0), ("a", "x", None), ("b", "x", None)], id="a pool in two slices"),
        pytest.param([("c", "y", 9), ("d", "y", None), ("a", "x", None), ("b", "x", None)], id="a rank too high"),
        pytest.param([("c", "y", 2), ("d", "z", None), ("a", "x", None), ("b", "x", None)], id="pools exhausted"),
    ],
)
def test_where_nothing_fits_ranks_are_made_anew_by_topology(nodes: list[tuple[str, str, int | None]]) -> None:
    found = assign(reports(*nodes), 2, 2)
    assert found.invalidates
    assert sorted(found.ranks.values()) == [0, 1, 2, 3]


def test_anew_means_pool_after_pool() -> None:
    mixed = reports(("a", "x", 9), ("c", "y", None), ("b", "x", None), ("d", "y", None))
    assert assign(mixed, 2, 2).ranks == {"a": 0, "b": 1, "c": 2, "d": 3}


def jobset(*replicated: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": "u"}, "spec": {"replicatedJobs": list(replicated)}}


def replicated_job(driver: str = "multitier-checkpoint.csi.storage.gke.io") -> dict[str, Any]:
    pod = {"volumes": [{"name": "checkpoint", "csi": {"driver": driver}}]}
    return {"replicas": 2, "template": {"spec": {"parallelism": 4, "template": {"spec": pod}}}}


def test_ranks_are_for_jobsets_of_exactly_one_job_with_the_volume() -> None:
    assert job_shape(jobset(replicated_job())) == JobShape("u", 2, 4)
    assert job_shape(jobset(replicated_job(), replicated_job())) is None
    assert job_shape(jobset(replicated_job("other.csi.driver"))) is None


@pytest.fixture
def server() -> Iterator[RankServer]:
    shapes = {"run": JobShape("uid", 2, 1)}
    server = RankServer(lambda namespace, name: shapes.get(name), {"a": "x", "b": "y", "c": "z"}.get)
    server.start()
    yield server
    server.stop()


def report(server: RankServer, node: str, index: int, attempt: int = 0, **more: Any) -> requests.Response:
    document = {
        "node": node,
        "namespace": "default",
        "jobset": "run",
        "pod_uid": f"{node}-{attempt}",
        "pod_ip": f"127.0.0.{index + 2}",
        "attempt": attempt,
        "job_index": index,
        "completion_index": 0,
        **more,
    }
    return requests.post(f"{server.url}/ranks", json=document, timeout=30)


def test_ranks_are_given_when_all_pods_have_reported(server: RankServer) -> None:
    assert report(server, "a", 0).status_code == 202
    waited: list[requests.Response] = []
    waiting = threading.Thread(target=lambda: waited.append(report(server, "a", 0, wait=20)))
    waiting.start()
    second = report(server, "b", 1).json()
    waiting.join()
    first = waited[0].json()
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["coordinator"] == second["coordinator"]
    assert first["coordinator"].startswith("127.0.0.2:")


def test_each_attempt_gets_a_port_of_its_own_and_ends_the_one_before(server: RankServer) -> None:
    report(server, "a", 0)
    before = report(server, "b", 1).json()["coordinator"]
    report(server, "a", 0, attempt=1)
    assert report(server, "b", 1, attempt=1).json()["coordinator"] != before


def test_ranks_of_another_job_or_shape_do_not_count(server: RankServer) -> None:
    remembered = {"rank": 1, "slices": 2, "slice_size": 1}
    report(server, "a", 0, cached={**remembered, "job": "default/other"})
    assert report(server, "b", 1).json()["rank"] == 1
    report(server, "a", 0, attempt=1, cached={**remembered, "job": "default/run"})
    assert report(server, "b", 1, attempt=1).json()["rank"] == 0


def test_other_jobsets_get_no_rank(server: RankServer) -> None:
    assert report(server, "a", 0, jobset="filler").status_code == 404


def test_nobody_gets_a_rank_while_a_pool_is_not_known(server: RankServer) -> None:
    report(server, "a", 0)
    assert report(server, "unknown", 1).status_code == 202


def test_a_restarted_server_goes_on_in_the_middle_of_an_attempt(tmp_path: Path) -> None:
    def start(port: int) -> RankServer:
        server = RankServer(
            lambda namespace, name: JobShape("uid", 2, 1), {"a": "x", "b": "y"}.get, port=port, state=tmp_path / "state"
        )
        server.start()
        return server

    first = start(0)
    assert report(first, "a", 0).status_code == 202
    Registry(first.url).put("run", "127.0.0.9", 4242)
    first.stop()
    second = start(int(first.url.rsplit(":", 1)[1]))
    given = report(second, "b", 1).json()
    assert given["rank"] == 1
    found = Registry(second.url).wait("run")
    assert found is not None and found.ip == "127.0.0.9"
    second.stop()
    third = start(0)
    assert report(third, "a", 0).json() == {**given, "rank": 0}
    third.stop()


def test_a_coordinator_is_found_until_it_is_replaced(server: RankServer) -> None:
    registry = Registry(server.url)
    registry.put("run", "127.0.0.1", 4242)
    first = registry.wait("run")
    assert first is not None
    replaced: list[Any] = []
    waiting = threading.Thread(target=lambda: replaced.append(registry.wait("run", other_than=first.identifier)))
    waiting.start()
    registry.put("run", "127.0.0.2", 4242)
    waiting.join(10)
    assert replaced[0].ip == "127.0.0.2"
