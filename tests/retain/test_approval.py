"""Asking a person before a plan is applied: when nobody is asked, and which answers let a plan through.

That a task waits and goes on is shown in a real Airflow, in tests/airflow/test_sweep_checkpoints.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from tests.retain.retention_bucket import Bucket

from everstep.checkpoints.layout import RunFolder
from everstep.retain import deciding, reading, report
from everstep.retain.approval import APPROVE, REJECT, ApprovePlanOperator
from everstep.retain.bucket_rules import BucketRules
from everstep.retain.plan import RetentionPlan
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class TaskInstance:
    """As much of one as asking needs."""

    map_index = 0

    def __init__(self, shown: str | None = None) -> None:
        self.shown = shown

    def xcom_push(self, key: str, value: Any) -> None:
        self.shown = value

    def xcom_pull(self, **_: Any) -> str | None:
        return self.shown


def plan_of(*numbers: int, keep_last: int = 1) -> RetentionPlan:
    bucket = Bucket()
    bucket.run_record("run")
    for day in numbers:
        bucket.backup("run", f"2026-03-{day:02}_00-00", day * 10)
    found = bucket.carry_out(reading.read(RunFolder("bucket", "run"), now=NOW, keep_complete=1))
    rules, settings = BucketRules(hierarchical=True), Settings(keep_complete=1)
    return deciding.make(found, Policy(keep_last=keep_last), now=NOW, rules=rules, settings=settings)


def operator(plan: RetentionPlan, **more: Any) -> ApprovePlanOperator:
    return ApprovePlanOperator(task_id="approve", plan=plan.as_dict(), **more)


def answered(plan: RetentionPlan, event: dict[str, Any], shown: str | None = None) -> dict[str, Any]:
    context: Any = {"ti": TaskInstance(shown or plan.hash)}
    return operator(plan).execute_complete(context, {"responded_by_user": {"id": "1", "name": "ann"}, **event})


def test_nobody_is_asked_who_need_not_be() -> None:
    context: Any = {"ti": TaskInstance()}
    plan, nothing = plan_of(1, 2, 3, 4, 5), plan_of(1, 2, 3, keep_last=3)
    assert (len(plan.swept) > 0, len(nothing.swept)) == (True, 0)
    for wanted in (False, "False", ""):
        assert operator(plan, wanted=wanted).execute(context) == plan.as_dict()
    assert operator(nothing).execute(context) == nothing.as_dict()
    assert context["ti"].shown is None


def test_only_the_plan_that_was_shown_and_approved_goes_on() -> None:
    plan = plan_of(1, 2, 3, 4, 5)
    assert answered(plan, {"chosen_options": [APPROVE]}) == plan.as_dict()
    with pytest.raises(AirflowSkipException, match="rejected by ann"):
        answered(plan, {"chosen_options": [REJECT]})
    with pytest.raises(AirflowSkipException, match="rejected by somebody"):
        answered(plan, {"chosen_options": [], "responded_by_user": None})
    with pytest.raises(AirflowFailException, match=f"was approved by ann, found plan {plan.hash}, .* nothing is swept"):
        answered(plan, {"chosen_options": [APPROVE]}, shown="sha256:of-another")
    with pytest.raises(AirflowFailException, match=r"nobody answered within 20\.0 hours: nothing is swept"):
        answered(plan, {"error": "too late", "error_type": "timeout"})
    with pytest.raises(AirflowException, match="the answer was not received: broken"):
        answered(plan, {"error": "broken", "error_type": "unknown"})


def test_a_changed_plan_is_not_shown() -> None:
    plan = plan_of(1, 2, 3, 4, 5).as_dict() | {"run": "other"}
    with pytest.raises(AirflowFailException, match="the plan was changed"):
        ApprovePlanOperator(task_id="approve", plan=plan).execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]


def test_the_question_shows_what_goes_and_counts_what_is_too_much_to_show() -> None:
    plan = plan_of(1, 2, 3, 4, 5)
    text = report.question(plan, rows=2)
    assert text.startswith(report.summary(plan))
    assert "| 2026-03-04_00-00 | 40 | complete | " in text
    assert "2026-03-01_00-00" not in text
    assert f"and {len(plan.swept) - 2} more" in text
    assert "Complete and stays: 2026-03-05_00-00\n" in text
    assert plan.hash in text
