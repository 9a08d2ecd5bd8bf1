from __future__ import annotations

from typing import Any

import pytest
import yaml

from everstep_trainer.errors import ConfigurationError
from everstep_trainer.replicator_config import ReplicatorConfig, peers_of


def config(**changes: Any) -> ReplicatorConfig:
    values: dict[str, Any] = {
        "job_name": "lm",
        "framework": "orbax",
        "node_rank": 1,
        "nodes": 4,
        "peer_ranks": (3,),
        "backup_interval_minutes": 30.0,
        "data_parallelism": 2,
    }
    return ReplicatorConfig(**values | changes)


def test_the_file_reads_back() -> None:
    assert yaml.safe_load(config().to_yaml()) == {
        "job-name": "lm",
        "framework": "orbax",
        "assume-data-parallelism": 2,
        "node-rank": 1,
        "nodes": 4,
        "workers-per-node": 1,
        "peer-ranks": [3],
        "backup-interval-minutes": 30,
    }


def test_fractions_of_minutes_and_a_single_slice() -> None:
    read = yaml.safe_load(config(nodes=2, peer_ranks=(), data_parallelism=None, backup_interval_minutes=0.5).to_yaml())
    assert (read["backup-interval-minutes"], read["peer-ranks"]) == (0.5, [])
    assert "assume-data-parallelism" not in read


@pytest.mark.parametrize("name", ["2025-10-22", "0123", "on", "no", "a/b", "", "Lm", "lm-", "a:b", "$HOME"])
def test_job_names_that_yaml_or_paths_would_misread(name: str) -> None:
    with pytest.raises(ConfigurationError, match="job-name"):
        config(job_name=name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"node_rank": 4}, "node-rank 4"),
        ({"node_rank": -1}, "node-rank -1"),
        ({"peer_ranks": (1,)}, "peer-ranks"),
        ({"peer_ranks": (3, 3)}, "peer-ranks"),
        ({"peer_ranks": (4,)}, "peer-ranks"),
        ({"nodes": 32, "data_parallelism": 3}, "assume-data-parallelism 3"),
        ({"backup_interval_minutes": 0}, "backup-interval-minutes"),
        ({"framework": "jax"}, "framework"),
        ({"workers_per_node": 0}, "workers-per-node"),
    ],
)
def test_what_the_replicator_would_only_log(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        config(**changes)


def test_findings_come_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(job_name="on", node_rank=9, backup_interval_minutes=-1)
    assert len(caught.value.findings) == 3


def test_peers_are_at_the_same_place_of_other_slices() -> None:
    assert [peers_of(rank, slices=3, nodes_per_slice=2) for rank in (0, 3)] == [(2, 4), (1, 5)]
    assert peers_of(1, slices=1, nodes_per_slice=2) == ()
