"""The handshake on a real directory, with the replicator's side played by file operations from another thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_trainer import restore_point
from everstep_trainer.errors import ConfigurationError, HandshakeFailed
from everstep_trainer.handshake import Handshake, InitInfo
from everstep_trainer.replicator_config import ReplicatorConfig
from everstep_trainer.restore_point import RestorePoint
from everstep_trainer.waiting import Deadline

DATA = "D" + "a" * 64 + ".data"
CONFIG = ReplicatorConfig("lm", "orbax", 0, 2, (1,), 30.0, 2)


def handshake(directory: Path, seconds: float = 5.0) -> Handshake:
    return Handshake(directory, "lm", Deadline(seconds))


def replicator(directory: Path, *acts: Callable[[], object]) -> threading.Thread:
    """Once a configuration is there: consume it, then act."""

    def work() -> None:
        path = directory / "replicator.yaml"
        give_up = time.monotonic() + 5
        while not path.exists() and time.monotonic() < give_up:
            time.sleep(0.005)
        path.unlink()
        for act in acts:
            act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def put(path: Path, text: str = "") -> None:
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(text)
    os.replace(aside, path)


def test_the_rank_file_is_waited_for(tmp_path: Path) -> None:
    timer = threading.Timer(0.2, lambda: put(tmp_path / "jax-init-info.txt", "3\n10.0.0.7:8476\n"))
    timer.start()
    began = time.monotonic()
    info = handshake(tmp_path).init_info()
    assert info == InitInfo(3, "10.0.0.7:8476")
    assert info.coordinator_host == "10.0.0.7"
    assert time.monotonic() - began < 1.0, "an event, not the safety poll, must have told"
    timer.join()


@pytest.mark.parametrize("text", ["3", "3\n", "x\n10.0.0.7:8476\n", "3\n10.0.0.7\n", "3\n10.0.0.7:http\n"])
def test_a_broken_rank_file(tmp_path: Path, text: str) -> None:
    put(tmp_path / "jax-init-info.txt", text)
    with pytest.raises(HandshakeFailed, match="expected a rank"):
        handshake(tmp_path).init_info()


def test_no_rank_file_before_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(HandshakeFailed, match=r"did not appear within 0\.2 s"):
        handshake(tmp_path, 0.2).init_info()


def test_no_volume(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="mount the multi-tier checkpoint volume"):
        handshake(tmp_path / "missing")


@pytest.mark.parametrize(
    ("present", "prerestore", "expected"),
    [
        pytest.param(True, "restore-step: 40\n", ("local", None), id="local"),
        pytest.param(False, "restore-step: 40\n", ("peer", None), id="peer"),
        pytest.param(
            False,
            "restore-step: 40\nrestore-backup: 2025-10-22_09-05\n",
            ("backup", "2025-10-22_09-05"),
            id="backup",
        ),
    ],
)
def test_a_restored_step_and_its_tier(
    tmp_path: Path, present: bool, prerestore: str, expected: tuple[str, str | None]
) -> None:
    if present:
        (tmp_path / DATA).mkdir()
    shaking = handshake(tmp_path)
    marker = tmp_path / "lm-s40-n0-w0.restore"
    thread = replicator(
        tmp_path,
        lambda: put(tmp_path / "replicator.prerestore", prerestore),
        lambda: (tmp_path / DATA).mkdir(exist_ok=True),
        lambda: marker.symlink_to(DATA),
    )
    shaking.hand_over(CONFIG)
    point = shaking.restore_point()
    thread.join()
    assert point == RestorePoint(40, expected[0], marker, expected[1])


def test_a_fresh_start_with_a_foreign_marker(tmp_path: Path) -> None:
    shaking = handshake(tmp_path)
    thread = replicator(
        tmp_path, lambda: put(tmp_path / "foreign.restore"), lambda: put(tmp_path / "lm-s0-n0-w0.restore")
    )
    shaking.hand_over(CONFIG)
    point = shaking.restore_point()
    thread.join()
    assert point == RestorePoint(None, "fresh", foreign=("foreign.restore",))


def test_a_dangling_marker_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lm-s40-n0-w0.restore").symlink_to(DATA)
    with pytest.raises(HandshakeFailed, match="points at"):
        restore_point.discover(tmp_path, "lm", ())


def test_a_consumed_marker_of_an_earlier_attempt_is_no_offer(tmp_path: Path) -> None:
    (tmp_path / "40").symlink_to(DATA)
    assert restore_point.discover(tmp_path, "lm", ()) is None


def test_a_failure_after_acceptance_is_fatal(tmp_path: Path) -> None:
    shaking = handshake(tmp_path)
    thread = replicator(tmp_path, lambda: put(tmp_path / "replicator.failed", "no rename support"))
    shaking.hand_over(CONFIG)
    with pytest.raises(HandshakeFailed, match="no rename support"):
        shaking.restore_point()
    thread.join()


def test_a_failure_from_before_says_nothing(tmp_path: Path) -> None:
    put(tmp_path / "replicator.failed", "of an earlier attempt")
    shaking = handshake(tmp_path)
    thread = replicator(tmp_path, lambda: put(tmp_path / "lm-s0-n0-w0.restore"))
    shaking.hand_over(CONFIG)
    assert shaking.restore_point().step is None
    thread.join()


def test_errors_are_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shaking = handshake(tmp_path)
    thread = replicator(
        tmp_path,
        lambda: put(tmp_path / "replicator.errors", "No valid checkpoints found anywhere"),
        lambda: put(tmp_path / "lm-s0-n0-w0.restore"),
    )
    shaking.hand_over(CONFIG)
    assert shaking.restore_point().step is None
    thread.join()
    assert caplog.text.count("No valid checkpoints found anywhere") == 1
    assert (tmp_path / "replicator.errors").exists()


def test_a_stale_configuration_is_replaced_after_its_share(tmp_path: Path) -> None:
    put(tmp_path / "replicator.yaml", "job-name: stale\n")
    began = time.monotonic()
    handshake(tmp_path, 1.0).hand_over(CONFIG)
    assert 0.15 < time.monotonic() - began < 0.9
    assert (tmp_path / "replicator.yaml").read_text() == CONFIG.to_yaml()


def test_a_stale_configuration_may_be_consumed_first(tmp_path: Path) -> None:
    put(tmp_path / "replicator.yaml", "job-name: stale\n")
    threading.Timer(0.1, (tmp_path / "replicator.yaml").unlink).start()
    began = time.monotonic()
    handshake(tmp_path, 30.0).hand_over(CONFIG)
    assert time.monotonic() - began < 2.0
    assert (tmp_path / "replicator.yaml").read_text() == CONFIG.to_yaml()


def test_the_configuration_appears_in_one_piece(tmp_path: Path) -> None:
    handshake(tmp_path).hand_over(CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["replicator.yaml"]


@pytest.mark.parametrize(("consumed", "told"), [(False, "was not read within"), (True, "no .restore marker")])
def test_one_deadline_for_everything(tmp_path: Path, consumed: bool, told: str) -> None:
    shaking = handshake(tmp_path, 0.4)
    shaking.hand_over(CONFIG)
    if consumed:
        (tmp_path / "replicator.yaml").unlink()
    began = time.monotonic()
    with pytest.raises(HandshakeFailed, match=told):
        shaking.restore_point()
    assert time.monotonic() - began < 1.5
