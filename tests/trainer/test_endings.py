from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Queue
from typing import Any, NoReturn

import pytest

from everstep_trainer import ending, errors, judging
from everstep_trainer.bucket import Bucket
from everstep_trainer.ending import Ending
from everstep_trainer.exit_codes import ExitCode, name_of
from everstep_trainer.judging import judge
from everstep_trainer.reports import Reports
from everstep_trainer.settings import Settings


@pytest.fixture
def exits() -> Queue[int]:
    return Queue()


@pytest.fixture
def end(settings_with: Callable[..., Settings], exits: Queue[int]) -> Ending:
    """An ending whose process goes on: the exit code is only noted, and the thread that ended it stops there."""

    def note(code: int) -> NoReturn:
        exits.put(code)
        if threading.current_thread() is threading.main_thread():
            raise SystemExit
        while True:
            time.sleep(3600)

    return Ending(Reports(Bucket("bucket"), settings_with()), note)


def caused_by(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("nodes"), ExitCode.CONFIGURATION_ERROR),
        (errors.StartRefused("bound"), ExitCode.START_REFUSED),
        (errors.NoRestorePoint("nothing"), ExitCode.NO_RESTORE_POINT),
        (errors.HandshakeFailed("failed"), 1),
        (caused_by(errors.StorageFailed("the save failed"), ValueError("UNAVAILABLE: gs://bucket")), 1),
        (errors.PeerLost("gone"), ExitCode.PEER_LOST),
        (ValueError("bad batch"), ExitCode.USER_EXCEPTION),
        (SystemExit(3), ExitCode.USER_EXCEPTION),
        (KeyboardInterrupt(), ExitCode.STOPPED_ON_REQUEST),
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), ExitCode.PEER_LOST),
        (ValueError("UNAVAILABLE: failed to connect"), ExitCode.PEER_LOST),
        (ValueError("INTERNAL: out of registers"), ExitCode.USER_EXCEPTION),
        (caused_by(OSError("save failed"), ValueError("INTERNAL: barrier")), ExitCode.USER_EXCEPTION),
    ],
)
def test_what_an_error_means_while_all_peers_are_there(
    end: Ending, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr(judging, "CAUSE_SECONDS", 0.05)
    assert judge(error, end, joined=True)[0] == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("INTERNAL: out of registers"), ExitCode.PEER_LOST),
        (caused_by(OSError("save failed"), ValueError("INTERNAL: barrier")), ExitCode.PEER_LOST),
        (caused_by(errors.StorageFailed("the save failed"), ValueError("UNAVAILABLE: barrier")), ExitCode.PEER_LOST),
        (ValueError("bad batch"), ExitCode.USER_EXCEPTION),
    ],
)
def test_a_lost_peer_explains_errors_of_the_runtime_only(
    end: Ending, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr(ending, "PEER_LOST_WAIT_SECONDS", 30.0)
    threading.Timer(0.1, end.peer_lost, ["node rank 3 is gone"]).start()
    time.sleep(0.2 if "bad" in str(error) else 0)
    assert judge(error, end, joined=True)[0] == code


def test_an_error_before_training_is_not_the_users(end: Ending) -> None:
    """Nor is it once the peers are connected: rank 0 still looks into the bucket then."""
    assert judge(OSError("bucket"), end, joined=False)[0] == 1
    assert judge(OSError("bucket"), None, joined=False)[0] == 1


def test_a_lost_peer_lets_the_cause_be_recorded_first(
    end: Ending, exits: Queue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "PEER_LOST_WAIT_SECONDS", 0.3)
    began = time.monotonic()
    end.peer_lost("node rank 3 is gone")
    end.peer_lost("node rank 3 is gone, told again")
    assert exits.get(timeout=5) == ExitCode.PEER_LOST
    assert time.monotonic() - began >= 0.3
    assert exits.empty()


def test_a_cause_of_its_own_counts_even_while_waiting(
    end: Ending, exits: Queue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "PEER_LOST_WAIT_SECONDS", 30.0)
    end.peer_lost("node rank 3 is gone")
    with pytest.raises(SystemExit):
        end.leave(ExitCode.USER_EXCEPTION, "ValueError: bad batch")
    assert exits.get_nowait() == ExitCode.USER_EXCEPTION


def test_codes_have_names() -> None:
    assert {code: name_of(code) for code in (0, 75, 1, 137)} == {
        0: "DONE",
        75: "PEER_LOST",
        1: "UNCLASSIFIED",
        137: "UNCLASSIFIED",
    }


def test_the_package_exports_what_training_code_uses() -> None:
    import everstep_trainer

    exported: set[Any] = set(everstep_trainer.__all__)
    assert {"join", "Run", "ExitCode", "TrainerError"} <= exported
