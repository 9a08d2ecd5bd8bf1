from __future__ import annotations

import os
from pathlib import Path

import pytest

from everstep_trainer.observer import Observed, look

DIGEST = "D" + "a" * 64
DATA = f"{DIGEST}.data"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "jax-init-info.txt").write_text("1\n10.0.0.7:8476\n")
    (tmp_path / "lm-s40-n1-w0.meta").write_text(DIGEST)
    (tmp_path / "lm-s60-n0-w0.meta").write_text(DIGEST)
    return tmp_path


def write_prerestore(node: Path, text: str) -> None:
    (node / "replicator.prerestore").write_text(text)


def test_nothing_is_known_without_a_rank(tmp_path: Path) -> None:
    assert look(tmp_path, "lm", frozenset()) == Observed()


def test_only_the_nodes_own_saves_count(node: Path) -> None:
    assert look(node, "lm", frozenset()) == Observed(rank=1, newest_save=40)
    (node / "lm-s50-n1-w0.save").mkdir()
    assert look(node, "lm", frozenset()).newest_save == 50
    assert look(node, "other", frozenset()).newest_save is None


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ("{}\n", frozenset(), (None, "fresh", None)),
        ("restore-step: 40\n", frozenset({DATA}), (40, "local", None)),
        ("restore-step: 40\n", frozenset(), (40, "peer", None)),
        (
            "restore-step: 40\nrestore-backup: 2025-10-22_09-05\n",
            frozenset(),
            (40, "backup", "2025-10-22_09-05"),
        ),
    ],
)
def test_the_restore(
    node: Path, text: str, before: frozenset[str], expected: tuple[int | None, str, str | None]
) -> None:
    write_prerestore(node, text)
    (node / DATA).mkdir()
    assert look(node, "lm", before).restored == expected


def test_data_that_has_not_come_yet(node: Path) -> None:
    write_prerestore(node, "restore-step: 40\n")
    assert look(node, "lm", frozenset()).restored is None


def test_the_word_of_an_earlier_attempt_does_not_count(node: Path) -> None:
    write_prerestore(node, "{}\n")
    os.utime(node / "replicator.prerestore", (1, 1))
    assert look(node, "lm", frozenset()).restored is None


def test_nothing_on_the_volume_is_touched(node: Path) -> None:
    (node / "replicator.failed").write_text("out of space\n")
    before = {path.name: path.stat().st_mtime_ns for path in node.iterdir()}
    assert look(node, "lm", frozenset()).replicator_failed == "out of space"
    assert {path.name: path.stat().st_mtime_ns for path in node.iterdir()} == before
