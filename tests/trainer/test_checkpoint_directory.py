from __future__ import annotations

from pathlib import Path

from everstep_trainer.checkpoint_directory import untaken_saves

DATA = "D" + "a" * 64 + ".data"


def test_saves_that_nobody_takes_stay_where_they_were_written(tmp_path: Path) -> None:
    for name in ("20", "9", "30.orbax-checkpoint-tmp", DATA):
        (tmp_path / name).mkdir()
    assert untaken_saves(tmp_path) == [9, 20]


def test_a_restored_step_and_what_the_replicator_took_do_not_count(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    (tmp_path / "10").symlink_to(DATA)
    (tmp_path / "lm-s20-n0-w0.save").mkdir()
    (tmp_path / "30").touch()
    assert untaken_saves(tmp_path) == []
