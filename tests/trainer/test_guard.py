from __future__ import annotations

from typing import Any

import pytest

from everstep.checkpoints.last_known_good import LastKnownGood
from everstep_trainer.errors import ConfigurationError, NoRestorePoint, StartRefused, TrainerError
from everstep_trainer.guard import History, Offer, Start, carried_over, decide
from everstep_trainer.run_record import RunRecord

KNOWN = {"known": True, "lineage": "a", "launch": 1, "nodes": 4, "data_parallelism": 2}
BACKUP = LastKnownGood(40, "backup", "2025-10-22_09-05")
SAVED = {"lineage": "a", "last_local_save": 40, "last_durable_save": None}


def record(**changes: Any) -> RunRecord:
    return RunRecord(**KNOWN | changes)


@pytest.mark.parametrize(
    ("offer", "history", "changes", "expected"),
    [
        pytest.param(Offer(40), History(), {}, ("replicator", 40), id="what is offered"),
        pytest.param(Offer(40), History(durable_step=60), {}, ("durable", 60), id="a newer durable save"),
        pytest.param(Offer(40), History(durable_step=40), {}, ("replicator", 40), id="an equal durable save"),
        pytest.param(Offer(40), History(), {"bound_step": 40}, ("replicator", 40), id="at the bound"),
        pytest.param(Offer(None), History(durable_step=60), {}, ("durable", 60), id="only a durable save"),
        pytest.param(Offer(None), History(), {}, ("fresh", None), id="a first start"),
        pytest.param(
            Offer(None), History(BACKUP, status=SAVED), {"allow_fresh_start": True}, ("fresh", None), id="allowed"
        ),
        pytest.param(
            Offer(None), History(status={**SAVED, "lineage": "b"}), {}, ("fresh", None), id="another lineage's progress"
        ),
        pytest.param(
            Offer(None),
            History(status={**SAVED, "last_local_save": None}),
            {},
            ("fresh", None),
            id="a status without a save",
        ),
    ],
)
def test_what_the_run_starts_from(
    offer: Offer, history: History, changes: dict[str, Any], expected: tuple[str, int | None]
) -> None:
    start = decide(record(**changes), offer, history)
    assert (start.source, start.step) == expected
    assert start.reason


@pytest.mark.parametrize(
    ("offer", "history", "changes", "error", "told"),
    [
        pytest.param(Offer(41), History(), {"bound_step": 40}, StartRefused, "above the lineage's bound", id="bound"),
        pytest.param(
            Offer(41), History(durable_step=40), {"bound_step": 40}, StartRefused, "bound", id="bound with durable save"
        ),
        pytest.param(
            Offer(40, "2025-10-22_09-05"),
            History(),
            {"quarantined": ("2025-10-22_09-05",)},
            StartRefused,
            "quarantined",
            id="quarantine",
        ),
        pytest.param(Offer(None), History(BACKUP), {}, StartRefused, "2025-10-22_09-05 holds step 40", id="backup"),
        pytest.param(Offer(None), History(status=SAVED), {}, NoRestorePoint, "saved step 40", id="saved progress"),
        pytest.param(
            Offer(None), History(traces=("2025-10-22_09-05",)), {}, NoRestorePoint, "the bucket holds", id="traces"
        ),
    ],
)
def test_what_is_refused(
    offer: Offer, history: History, changes: dict[str, Any], error: type[TrainerError], told: str
) -> None:
    with pytest.raises(error, match=told):
        decide(record(**changes), offer, history)


def test_a_run_without_record_is_still_guarded_by_the_bucket() -> None:
    assert decide(RunRecord(), Offer(None), History()) == Start("fresh", None, "nothing was ever saved")
    with pytest.raises(StartRefused):
        decide(RunRecord(), Offer(None), History(BACKUP))
    with pytest.raises(NoRestorePoint):
        decide(RunRecord(), Offer(None), History(status=SAVED))


def test_an_attempt_repeats_what_the_last_one_saved() -> None:
    assert carried_over(record(), SAVED) == {"last_local_save": 40}
    assert carried_over(RunRecord(), SAVED) == {"last_local_save": 40}
    assert carried_over(record(), {**SAVED, "lineage": "b"}) == {}
    assert carried_over(record(), None) == {}


def test_the_record_is_read() -> None:
    content = (
        b'{"version": 1, "lineage": "a", "launch": 3, "nodes": 4, "data_parallelism": 2, "bound_step": 7,'
        b' "quarantined": ["2025-10-22_09-05"], "allow_fresh_start": true}'
    )
    read = RunRecord.parse(content, "gs://bucket/lm/everstep/run.json")
    assert read == RunRecord(True, "a", 3, 4, 2, True, 7, ("2025-10-22_09-05",))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 1}', b'{"version": 2}'])
def test_an_unreadable_record_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.json"):
        RunRecord.parse(content, "run.json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"launch": 3}, "a newer JobSet"),
        ({"launch": 1}, "out of date"),
        ({"launch": 2, "nodes": 6}, "nodes 6"),
        ({"launch": 2, "data_parallelism": 1}, "1"),
    ],
)
def test_another_launch_or_shape_is_refused_before_the_replicator_hears_of_it(
    settings_with: Any, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(StartRefused, match=told):
        record(**changes).check(settings_with(), "run.json")
    record(launch=2).check(settings_with(), "run.json")
