from __future__ import annotations

from pathlib import Path

import pytest

from everstep_trainer.errors import ConfigurationError
from everstep_trainer.settings import Settings


def test_defaults(environment: dict[str, str]) -> None:
    settings = Settings.from_environment(environment)
    assert (settings.nodes, settings.data_parallelism, settings.workers_per_node) == (4, 2, 1)
    assert settings.directory == Path("/local")
    assert (settings.durable_at_end, settings.durable_every_hours, settings.final_step) == (True, None, None)
    assert (settings.framework, settings.handshake_seconds, settings.pod_info) == ("orbax", 900.0, None)


def test_what_is_set_counts(environment: dict[str, str]) -> None:
    environment |= {
        "EVERSTEP_DURABLE_AT_END": "false",
        "EVERSTEP_DURABLE_EVERY_HOURS": "0.5",
        "EVERSTEP_FINAL_STEP": "300",
        "EVERSTEP_BACKUP_EVERY_MINUTES": "0.5",
        "EVERSTEP_DATA_PARALLELISM": "4",
        "EVERSTEP_POD_INFO": "/etc/everstep",
    }
    settings = Settings.from_environment(environment)
    assert (settings.durable_at_end, settings.durable_every_hours, settings.final_step) == (False, 0.5, 300)
    assert (settings.backup_every_minutes, settings.data_parallelism) == (0.5, 4)
    assert settings.pod_info == Path("/etc/everstep")


def test_every_finding_is_told_at_once(environment: dict[str, str]) -> None:
    del environment["EVERSTEP_RUN"]
    environment |= {"EVERSTEP_SLICES": "zwei", "EVERSTEP_RUN_URL": "bucket/lm", "EVERSTEP_LAUNCH": "0"}
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_environment(environment)
    told = "\n".join(caught.value.findings)
    assert len(caught.value.findings) == 4
    for name in ("EVERSTEP_RUN ", "EVERSTEP_SLICES", "EVERSTEP_RUN_URL", "EVERSTEP_LAUNCH"):
        assert name in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"EVERSTEP_RUN_URL": "gs://bucket/other"}, "both must be the same"),
        ({"EVERSTEP_DATA_PARALLELISM": "3"}, "does not divide 4 nodes"),
        ({"EVERSTEP_FRAMEWORK": "tensorflow"}, "expected one of orbax"),
        ({"EVERSTEP_WORKERS_PER_NODE": "2"}, "set 1"),
        ({"EVERSTEP_BACKUP_EVERY_MINUTES": "nan"}, "above 0"),
        ({"EVERSTEP_DURABLE_AT_END": "yes"}, "true or false"),
        ({"EVERSTEP_SLICES": "٢"}, "whole number"),
    ],
)
def test_contradictions(environment: dict[str, str], changes: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Settings.from_environment(environment | changes)
