from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from everstep_trainer.settings import Settings

ENVIRONMENT = {
    "EVERSTEP_RUN": "lm",
    "EVERSTEP_RUN_URL": "gs://bucket/lm",
    "EVERSTEP_LAUNCH": "2",
    "EVERSTEP_RESTART_ATTEMPT": "1",
    "EVERSTEP_SLICES": "2",
    "EVERSTEP_NODES_PER_SLICE": "2",
    "EVERSTEP_SLICE_INDEX": "1",
    "EVERSTEP_NODE_INDEX": "0",
    "EVERSTEP_LOCAL_EVERY_STEPS": "20",
}


@pytest.fixture
def environment() -> dict[str, str]:
    """What a launcher sets, without the variables that have defaults."""
    return dict(ENVIRONMENT)


@pytest.fixture
def settings_with(tmp_path: Path) -> Callable[..., Settings]:
    def make(changes: Mapping[str, str] | None = None) -> Settings:
        directory = {"EVERSTEP_CHECKPOINT_DIR": str(tmp_path)}
        return Settings.from_environment({**ENVIRONMENT, **directory, **(changes or {})})

    return make
