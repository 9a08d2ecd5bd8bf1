from __future__ import annotations

import pytest

from everstep.checkpoints.local_tier import Entry, Marker, MarkerState, read

FRESH = Entry("j-s0-n0-w0.restore", "file")
RESTORED = Entry("j-s100-n0-w0.restore", "symlink")


@pytest.mark.parametrize(
    ("entry", "state", "step"),
    [
        pytest.param(FRESH, MarkerState.FRESH, 0, id="empty file of step 0"),
        pytest.param(RESTORED, MarkerState.RESTORED, 100, id="symlink"),
        pytest.param(
            Entry("j-s100-n0-w0.restore", "symlink", resolves=False), MarkerState.DANGLING, 100, id="dangling"
        ),
        pytest.param(Entry("foreign.restore", "file"), MarkerState.FOREIGN, None, id="no such name"),
        pytest.param(Entry("j-s0-n0-w0.restore", "file", size=3), MarkerState.FOREIGN, None, id="fresh with text"),
        pytest.param(Entry("j-s7-n0-w0.restore", "file"), MarkerState.FOREIGN, None, id="file of a step"),
        pytest.param(
            Entry("run-s5-n0-w0-s60-n1-w2.restore", "symlink"), MarkerState.RESTORED, 60, id="parsed from the right"
        ),
        pytest.param(Entry("100", "directory"), MarkerState.CONSUMED, 100, id="consumed"),
        pytest.param(Entry("100", "symlink", resolves=False), MarkerState.CONSUMED, 100, id="consumed and collected"),
    ],
)
def test_one_marker(entry: Entry, state: MarkerState, step: int | None) -> None:
    (marker,) = read([entry, Entry("replicator.yaml", "file"), Entry("7.tmp", "directory")]).markers
    assert (marker.state, marker.step) == (state, step)


def test_a_restored_step_beats_the_fresh_marker_and_the_highest_wins() -> None:
    tier = read([FRESH, RESTORED, Entry("j-s9-n0-w0.restore", "symlink"), Entry("x.restore", "file")])
    assert tier.decided == Marker("j-s100-n0-w0.restore", MarkerState.RESTORED, 100)
    assert tier.foreign == ("x.restore",)


def test_a_foreign_marker_decides_nothing() -> None:
    assert read([Entry("foreign.restore", "file")]).decided is None
    assert read([RESTORED], job="other").decided is None
