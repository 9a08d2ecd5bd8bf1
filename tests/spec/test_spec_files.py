"""Run and cluster files: what is taken, and what is told of all that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.spec import ClusterSpec, FindingsError, Severity, TrainingSpec
from everstep.spec.schema import cluster_schema, run_schema


@pytest.fixture
def dags(tmp_path: Path, run_data: dict[str, Any], cluster_data: dict[str, Any]) -> Path:
    """A folder as people have it: runs/lm.yaml and clusters/sandbox.yaml."""
    for folder, name, data in (("runs", "lm", run_data), ("clusters", "sandbox", cluster_data)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
    return tmp_path


def place(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> TrainingSpec:
    return TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))


def test_a_run_file_finds_its_cluster_file_beside_it(dags: Path) -> None:
    spec = TrainingSpec.from_yaml(dags / "runs" / "lm.yaml")
    assert (spec.bucket, spec.nodes, spec.data_parallelism) == ("everstep-tests", 4, 2)
    assert spec.cluster_spec.name == "sandbox"


def test_a_relative_path_is_found_beside_the_dag_file(dags: Path) -> None:
    dag_file = dags / "train.py"
    dag_file.write_text("")
    assert TrainingSpec.from_yaml("runs/lm.yaml", beside=dag_file).name == "lm"
    with pytest.raises(FindingsError, match="no such file"):
        TrainingSpec.from_yaml("runs/other.yaml", beside=dag_file)


def test_overrides_win_and_empty_ones_change_nothing(dags: Path) -> None:
    spec = TrainingSpec.from_yaml(
        dags / "runs" / "lm.yaml",
        {"final_step": 7, "checkpoints.local.every_steps": 3, "slices": {"count": 1}, "priority": None},
    )
    assert (spec.final_step, spec.checkpoints.local.every_steps, spec.slices.count) == (7, 3, 1)
    assert spec.slices.pool == "v6e-2x4"
    assert spec.priority == "training-high"


def test_all_mistakes_are_told_at_once_with_key_and_remedy(dags: Path) -> None:
    with pytest.raises(FindingsError) as raised:
        TrainingSpec.from_yaml(
            dags / "runs" / "lm.yaml",
            {
                "checkpoints.local.evry_steps": 5,
                "final_step": 0,
                "checkpoints.backup.every_minutes": 0,
                "trainer.image": 3,
            },
        )
    told = {finding.object: finding for finding in raised.value.findings}
    assert told.keys() == {
        "lm.yaml: checkpoints.local.evry_steps",
        "lm.yaml: final_step",
        "lm.yaml: checkpoints.backup.every_minutes",
        "lm.yaml: trainer.image",
    }
    assert told["lm.yaml: checkpoints.local.evry_steps"].remedy == "did you mean 'every_steps'?"
    assert "4 errors" in str(raised.value)


@pytest.mark.parametrize("name", ["2025-10-22", "0123", "on"])
def test_names_that_yaml_reads_as_something_else_are_refused(dags: Path, name: str) -> None:
    path = dags / "runs" / "lm.yaml"
    path.write_text(path.read_text().replace("name: lm", f"name: {name}"))
    with pytest.raises(FindingsError, match=r"lm\.yaml: name"):
        TrainingSpec.from_yaml(path)


def test_a_repeated_key_and_a_broken_file_are_refused(dags: Path) -> None:
    path = dags / "runs" / "lm.yaml"
    path.write_text(path.read_text() + "final_step: 3\n")
    with pytest.raises(FindingsError, match="'final_step' stands twice"):
        TrainingSpec.from_yaml(path)
    path.write_text("a: [1")
    with pytest.raises(FindingsError, match="is not YAML"):
        TrainingSpec.from_yaml(path)
    path.write_text("- a\n")
    with pytest.raises(FindingsError, match="a mapping"):
        TrainingSpec.from_yaml(path)


def test_a_cluster_that_has_no_file_names_those_there_are(dags: Path) -> None:
    with pytest.raises(FindingsError, match="clusters there are: sandbox"):
        TrainingSpec.from_yaml(dags / "runs" / "lm.yaml", {"cluster": "tokyo"})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"slices": {"pool": "v6e-2x5", "count": 2}}, "did you mean 'v6e-2x4'"),
        ({"slices": {"pool": "v6e-2x4", "count": 4}}, "at most 3 in pool"),
        ({"slices": {"pool": "v6e-2x4", "count": 3, "spare": "idle"}}, "3 and an idle spare"),
        ({"priority": "training-hi"}, "did you mean 'training-high'"),
        ({"priority": "training-low"}, "the lowest of the cluster file"),
        ({"priority": None}, "spare: preempt; expected one of training-high"),
        ({"name": "a" * 48}, "at most 47"),
        ({"name": "Run_1"}, "lower-case letters"),
        ({"name": "1run"}, "starting with a letter"),
        (
            {"checkpoints": {"local": {"every_steps": 5}, "data_parallelism": 3}},
            "a divisor of the number of nodes: 1, 2, 4",
        ),
        ({"checkpoints": {"local": {"every_steps": 5}, "size": "117MiB"}}, "2.2 times one node's checkpoint"),
        (
            {"checkpoints": {"local": {"every_steps": 5}, "parameters": 8e9}},
            "checkpoints.parameters: 44.7 GiB per node",
        ),
    ],
)
def test_a_run_that_does_not_fit_its_cluster(
    run_data: dict[str, Any], cluster_data: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(FindingsError) as raised:
        place(run_data | changes, cluster_data)
    assert told in str(raised.value)


def test_a_size_at_the_limit_of_the_ram_disk_fits(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    run_data["checkpoints"]["size"] = "116MiB"
    assert place(run_data, cluster_data).bytes_per_node == 116 * 2**20


def test_short_intervals_are_warned_of(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    run_data["checkpoints"]["backup"] = {"every_minutes": 29}
    findings = place(run_data, cluster_data).findings()
    assert [(each.severity, each.object) for each in findings] == [
        (Severity.WARNING, "checkpoints.backup.every_minutes")
    ]
    run_data["checkpoints"]["backup"] = {"every_minutes": 30}
    assert place(run_data, cluster_data).findings() == []


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("pools", "v6e-2x4", "topology"), "4x4", "4 x 2 = 8 and 4x4 has 16"),
        (("pools", "v6e-2x4", "topology"), None, "a topology, since the accelerator"),
        (("checkpoint_configurations", "everstep", "bucket"), "gs://everstep", "no gs://"),
        (("checkpoint_configurations", "everstep", "in_memory_volume_size"), "lots", "a size such as"),
        (("priorities", "system-mine"), 5, "which Kubernetes keeps"),
        (("priorities", "high"), 2_000_000_000, "at most 1000000000"),
        (("endpoint",), "vpn", "'kubeconfig', 'dns', 'private' or 'public'"),
        (("zone",), "a", "an unknown key"),
    ],
)
def test_what_a_cluster_file_may_not_say(
    tmp_path: Path, cluster_data: dict[str, Any], where: tuple[str, ...], value: Any, told: str
) -> None:
    target = cluster_data
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(cluster_data))
    with pytest.raises(FindingsError) as raised:
        ClusterSpec.from_yaml(path)
    assert told in str(raised.value)


def test_two_configurations_for_one_machine_type_are_refused(tmp_path: Path, cluster_data: dict[str, Any]) -> None:
    configurations = cluster_data["checkpoint_configurations"]
    configurations["other"] = dict(configurations["everstep"])
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(cluster_data))
    with pytest.raises(FindingsError, match="would never get its driver"):
        ClusterSpec.from_yaml(path)


def test_gpu_pools_need_three_times_the_ram(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> None:
    cluster_data["pools"]["v6e-2x4"] = {
        "accelerator": "nvidia-h100-80gb",
        "machine_type": "a3-highgpu-8g",
        "chips_per_node": 8,
        "nodes_per_slice": 2,
        "slices": 3,
    }
    cluster_data["checkpoint_configurations"]["everstep"]["machine_type"] = "a3-highgpu-8g"
    run_data["checkpoints"]["size"] = "38MiB"
    spec = place(run_data, cluster_data)
    assert spec.pool.resource == "nvidia.com/gpu"
    run_data["checkpoints"]["size"] = "39MiB"
    with pytest.raises(FindingsError, match=r"6\.6 times"):
        place(run_data, cluster_data)


def test_the_published_schemas_accept_the_files_and_refuse_unknown_keys(
    run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    import jsonschema

    jsonschema.validate(run_data, run_schema())
    jsonschema.validate(cluster_data, cluster_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(run_data | {"nmae": 1}, run_schema())


def test_a_spec_without_cluster_says_how_to_get_one(run_data: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match=r"spec\.on"):
        _ = TrainingSpec.model_validate(run_data).cluster_spec
