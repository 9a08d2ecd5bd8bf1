"""PyTorch DCP saves in a real bucket: planned, swept and had back like all others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.retain.real_bucket import RUN, RealBucket

from everstep.retain import sweep
from everstep.retain.sweep_report import SweepSettings

pytestmark = pytest.mark.sandbox

LATER = datetime.now(UTC) + timedelta(days=2)
SETTINGS = SweepSettings(now=lambda: LATER)


@pytest.mark.parametrize("hierarchical", [True, False])
def test_older_dcp_saves_go_whole_and_one_that_is_cut_off_protects_nothing(
    cloud_storage: Any, hierarchical: bool
) -> None:
    bucket = RealBucket(cloud_storage.address, hierarchical=hierarchical)
    bucket.history(backups=2)
    for step in (10, 20, 30, 40):
        bucket.dcp(step)
    bucket.put(f"{RUN}/checkpoints/40/__1_0.distcp", "cut")
    before = bucket.names(f"{RUN}/checkpoints/")
    plan = bucket.plan(keep_last=1)
    kinds = {unit.name: (unit.kind, unit.state, unit.keep) for unit in plan.units if unit.kind == "dcp"}
    assert kinds == {
        "checkpoints/10": ("dcp", "complete", False),
        "checkpoints/20": ("dcp", "complete", True),
        "checkpoints/30": ("dcp", "complete", True),
        "checkpoints/40": ("dcp", "torn", True),
    }
    report = sweep.apply(bucket.client(), plan, settings=SETTINGS, objects_per_second=1e6)
    assert (report.swept, report.skipped) == (["checkpoints/10"], {})
    left = {name for name in before if not name.startswith(f"{RUN}/checkpoints/10/")}
    assert bucket.names(f"{RUN}/checkpoints/") == left
    if hierarchical:
        undone = sweep.undo(bucket.client(), RUN, plan.hash, settings=SETTINGS)
        assert undone.restored == ["checkpoints/10"]
        assert bucket.names(f"{RUN}/checkpoints/") == before
