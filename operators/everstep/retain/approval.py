"""The operator that asks a person before a retention plan is applied. Asking needs Airflow 3.1 or later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowOptionalProviderFeatureException,
    AirflowSkipException,
    BaseOperator,
)

from everstep.telling import is_true, told

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

APPROVE = "Approve"
REJECT = "Reject"
SHOWN = "shown"
"""The XCom that holds the hash of the plan that was shown."""


class ApprovePlanOperator(BaseOperator):
    """Show a plan to a person, wait for the answer without a worker, and return exactly the plan that was approved.

    A plan that was rejected skips the task, and with it the sweep that takes its result. One that nobody answered in
    time fails it, without retries. A plan that sweeps nothing is returned without asking. Airflow answers for a person
    through *Required Actions* in its UI or `PATCH …/hitlDetails` of its API.

    :param plan: what PlanRetentionOperator returned (templated)
    :param wanted: whether to ask; otherwise the plan is returned at once. Texts such as "true" count (templated)
    :param answer_within_hours: how long to wait (templated)
    """

    template_fields: Sequence[str] = ("plan", "wanted", "answer_within_hours")
    template_ext: Sequence[str] = ()
    ui_color = "#dfe9f5"

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        wanted: bool | str = True,
        answer_within_hours: float | str = 20.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.wanted = wanted
        self.answer_within_hours = answer_within_hours

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, where that is wished."""
        from everstep.retain import plan as plans
        from everstep.retain import report

        plan = told(lambda: plans.verify(self.plan))
        if not is_true(self.wanted):
            self.log.info("Nobody is asked")
            return plan.as_dict()
        if not plan.swept:
            self.log.info("Nobody is asked: %s", report.summary(plan))
            return plan.as_dict()
        context["ti"].xcom_push(SHOWN, plan.hash)
        self._ask(context, f"Sweep old checkpoints of {plan.run}?", report.question(plan))
        raise AssertionError("asking suspends the task")

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan if it was approved and is still the one that was shown."""
        from everstep.retain import plan as plans

        if event.get("error_type") == "timeout":
            raise AirflowFailException(
                f"nobody answered within {self.answer_within_hours} hours: nothing is swept; remedy: trigger the DAG "
                "again"
            )
        if "error" in event:
            raise AirflowException(f"the answer was not received: {event['error']}")
        by = (event.get("responded_by_user") or {}).get("name") or "somebody"
        if event["chosen_options"] != [APPROVE]:
            raise AirflowSkipException(f"rejected by {by}: nothing is swept")
        plan = told(lambda: plans.verify(self.plan))
        shown = context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN, map_indexes=context["ti"].map_index)
        if plan.hash != shown:
            raise AirflowFailException(
                f"plan {shown} was approved by {by}, found plan {plan.hash}, which was made meanwhile: nothing is "
                "swept; remedy: clear this task, so that the new plan is shown"
            )
        self.log.info("Approved by %s: plan %s", by, plan.hash)
        return plan.as_dict()

    def _ask(self, context: Context, subject: str, body: str) -> None:
        """Suspend the task until there is an answer; `execute_complete` goes on."""
        try:
            from airflow.providers.standard.operators.hitl import HITLOperator
        except (ImportError, AirflowOptionalProviderFeatureException) as missing:
            raise AirflowFailException(
                f"a person can't be asked here ({missing}), expected Airflow 3.1 or later with its standard provider; "
                "remedy: read the plan, then sweep without asking"
            ) from missing
        asking = HITLOperator(
            task_id=self.task_id,
            subject=subject,
            body=body,
            options=[APPROVE, REJECT],
            response_timeout=timedelta(hours=float(self.answer_within_hours)),
        )
        # Not through the guard around it, which warns of an operator that runs inside another one.
        guarded = HITLOperator.execute
        getattr(guarded, "__wrapped__", guarded)(asking, context)
