"""The replicator's rules as functions: names, config, completeness, garbage, digests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.checkpoints import completeness as product
from everstep_sandbox.checkpointing import names
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.completeness import Candidates, Shape, complete, newest_valid
from everstep_sandbox.checkpointing.config import Config, ConfigError, parse
from everstep_sandbox.checkpointing.digest import digest
from everstep_sandbox.checkpointing.inotify import Inotify
from everstep_sandbox.checkpointing.names import Member
from everstep_sandbox.checkpointing.node import Node
from everstep_sandbox.checkpointing.ramdisk import RamDisk
from everstep_sandbox.checkpointing.registry import Registry

A, B, C = ("D" + letter * 64 for letter in "abc")

YAML = """
job-name: run
framework: orbax
node-rank: 1
nodes: 4
peer-ranks: [3]
backup-interval-minutes: 30
"""


def ignore(reason: str) -> None:
    """Reasons are looked at elsewhere."""


def test_names_are_parsed_from_the_right() -> None:
    assert names.parse("run-s5-n0-w0-s60-n1-w2.restore") == Member("run-s5-n0-w0", 60, 1, 2, "restore")
    assert names.parse("foreign.restore") is None
    assert Member("run", 5, 0, 0, "meta").name == "run-s5-n0-w0.meta"


def test_config_defaults_and_peers() -> None:
    assert parse(YAML) == Config("run", "orbax", 1, 4, (3,), 1, 4242, None, 30.0)
    shifted = parse(YAML.replace("peer-ranks: [3]", "peers-per-node: 2"))
    assert shifted.peers == (2, 3)


def test_config_expands_variables_and_turns_digits_into_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("JOB", "deep")
    config = parse(YAML.replace("node-rank: 1", "node-rank: $RANK").replace("job-name: run", "job-name: x-${JOB}"))
    assert (config.rank, config.job) == (2, "x-deep")


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("peer-ranks: [3]\n", "", "peer-ranks"),
        ("framework: orbax", "framework: tensorflow", "tensorflow"),
        ("nodes: 4", "nodes: four", "four"),
        ("nodes: 4\n", "", "nodes"),
        ("peer-ranks: [3]", "peer-ranks: [1, 16] or peers-per-node: 2", "not YAML"),
    ],
)
def test_configs_that_can_not_be_used(found: str, instead: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(YAML.replace(found, instead))


def test_steps_in_place_of_minutes_are_not_understood() -> None:
    assert parse(YAML.replace("-minutes", "-steps")).backup_interval_minutes is None


@pytest.mark.parametrize(
    ("nodes", "groups", "uploading"),
    [(4, None, [0, 1, 2, 3]), (4, 2, [2, 3]), (4, 4, [3]), (32, 3, list(range(22, 32)))],
)
def test_only_the_last_group_uploads_data(nodes: int, groups: int | None, uploading: list[int]) -> None:
    found = [rank for rank in range(nodes) if Config("r", "orbax", rank, nodes, (), 1, 0, groups, 1).uploads_data]
    assert found == uploading


def test_a_step_needs_every_meta_and_its_data() -> None:
    metas = {(5, 0, 0): A, (5, 1, 0): B, (9, 0, 0): A}
    reasons: list[str] = []
    assert newest_valid(Candidates(metas, {A, B}), Shape(2, 1), reasons.append) == 5
    assert reasons == ["Step 9, Node 1, GPU 0 meta is missing"]
    assert newest_valid(Candidates(metas, {A}), Shape(2, 1), ignore) is None
    assert newest_valid(Candidates(metas, {A, B}), Shape(1, 1), ignore) == 9


def test_metas_are_inferred_inside_a_column() -> None:
    metas = {(5, 0, 0): A, (5, 3, 0): B}
    assert complete(Candidates(metas, {A, B}), 5, Shape(4, 1, 2), ignore) == {
        (0, 0): A,
        (1, 0): B,
        (2, 0): A,
        (3, 0): B,
    }
    assert complete(Candidates(metas, {A, B}), 5, Shape(4, 1, None), ignore) is None
    assert complete(Candidates(metas, {A, B}), 5, Shape(4, 1, 3), ignore) is None


def test_a_conflicting_column_is_not_inferred_but_may_be_complete() -> None:
    conflict = {(5, 0, 0): A, (5, 1, 0): B, (5, 2, 0): C, (5, 3, 0): B}
    assert complete(Candidates(conflict, {A, B, C}), 5, Shape(4, 1, 2), ignore) is not None
    del conflict[5, 1, 0]
    assert complete(Candidates(conflict, {A, B, C}), 5, Shape(4, 1, 2), ignore) is not None
    del conflict[5, 3, 0]
    assert complete(Candidates(conflict, {A, B, C}), 5, Shape(4, 1, 2), ignore) is None


@settings(max_examples=300, deadline=None)
@given(
    metas=st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 1)), st.sampled_from([A, B, C]), max_size=20
    ),
    data=st.sets(st.sampled_from([A, B, C])),
    nodes=st.integers(1, 6),
    workers=st.integers(1, 2),
    groups=st.none() | st.integers(1, 4),
)
def test_the_product_judges_as_the_replicator_does(
    metas: dict[tuple[int, int, int], str], data: set[str], nodes: int, workers: int, groups: int | None
) -> None:
    chosen = newest_valid(Candidates(metas, data), Shape(nodes, workers, groups), ignore)
    by_step: dict[int, dict[tuple[int, int], str]] = {}
    for (step, node, worker), found in metas.items():
        by_step.setdefault(step, {})[node, worker] = found
    best, _ = product.best_step(by_step, {names.data_name(one) for one in data}, product.Shape(nodes, workers, groups))
    assert (best.step if best else 0) == (chosen or 0)


@pytest.fixture
def disk(tmp_path: Path) -> RamDisk:
    disk = RamDisk(tmp_path)
    disk.client.mkdir(parents=True)
    return disk


def listed(disk: RamDisk) -> set[str]:
    return {path.name for path in disk.client.iterdir()}


def test_cleaning_keeps_metas_data_and_the_input_files(disk: RamDisk) -> None:
    kept = {"run-s5-n0-w0.meta", f"{A}.data", "jax-init-info.txt", "replicator.yaml"}
    for name in (*kept, "replicator.errors", "replicator.failed", "mine.txt", "x.meta.tmp"):
        (disk.client / name).write_text("")
    (disk.client / "5").symlink_to("gone.data")
    (disk.client / "step=3" / "deep").mkdir(parents=True)
    disk.clean()
    assert listed(disk) == kept


def test_garbage_is_all_but_the_kept_steps_and_their_data(disk: RamDisk) -> None:
    for step, node, found in ((1, 0, A), (2, 0, B), (3, 0, C), (3, 1, B), (4, 0, A)):
        disk.write_meta(Member("run", step, node, 0, "meta"), found)
    disk.write_meta(Member("other", 3, 0, 0, "meta"), A)
    for found in (A, B, C):
        (disk.client / names.data_name(found)).mkdir()
    disk.collect_garbage("run", {2, 3})
    kept = {"run-s2-n0-w0.meta", "run-s3-n0-w0.meta", "run-s3-n1-w0.meta", f"{B}.data", f"{C}.data"}
    assert listed(disk) == kept, "neither older nor newer steps, nor other jobs"
    disk.collect_garbage("run", {3}, only_node=0)
    assert listed(disk) == {"run-s3-n0-w0.meta", f"{C}.data"}
    disk.collect_garbage("run", ())
    assert listed(disk) == set()


def test_a_file_tree_has_the_same_digest_whatever_its_files_are_called(tmp_path: Path) -> None:
    for number, (first, second) in enumerate((("a", "b"), ("z", "y"))):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / first).write_text("one")
        (directory / second).write_text("two")
    found = digest(tmp_path / "0", "pytorch.distributed")
    assert found == digest(tmp_path / "1", "pytorch.distributed")
    assert names.DATA.fullmatch(names.data_name(found))
    (tmp_path / "1" / "y").write_text("three")
    assert found != digest(tmp_path / "1", "pytorch.distributed")


def test_orbax_saves_are_digested_by_their_keys_and_values(tmp_path: Path) -> None:
    import tensorstore

    for name, value in (("first", b"1"), ("second", b"1"), ("third", b"2")):
        base = tmp_path / name / "state"
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{base}/"}).result()
        store.write("weights/0.0", value).result()
        (tmp_path / name / "_CHECKPOINT_METADATA").write_text(name)
    manifests = [(tmp_path / name / "state" / "manifest.ocdbt").read_bytes() for name in ("first", "second")]
    assert manifests[0] != manifests[1], "as files the two differ; else this test shows nothing"
    first, second, third = (digest(tmp_path / name, "orbax") for name in ("first", "second", "third"))
    assert first == second != third


def test_late_events_of_the_config_in_use_do_not_end_the_replicator(
    disk: RamDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config may be renamed into place after the watch began and before the first look for it."""

    class Ended(Exception):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr("os._exit", end)
    folder, registry = JobFolder("http://nowhere", "b", "run"), Registry("http://nowhere")
    events = Inotify()
    events.watch(disk.client)
    node = Node(parse(YAML), disk, events, folder, registry)
    disk.write("replicator.yaml", YAML)
    (disk.client / "replicator.yaml").unlink()
    node.see_events()
    disk.write("replicator.yaml", YAML)
    with pytest.raises(Ended):
        node.see_events()
    events.close()


def test_markers_link_to_data_or_are_empty(disk: RamDisk) -> None:
    disk.link(Member("run", 0, 1, 0, "restore"), None)
    disk.link(Member("run", 7, 1, 0, "restore"), A)
    assert (disk.client / "run-s0-n1-w0.restore").read_bytes() == b""
    assert os.readlink(disk.client / "run-s7-n1-w0.restore") == f"{A}.data"
