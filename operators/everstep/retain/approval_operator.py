"""The task in which a person approves a plan (Airflow 3.1 and later)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ApprovePlanOperator(ApprovalOperator):
    """Wait until a person approves a plan; one that is not approved is not applied, and nothing fails.

    :param wanted: whether to ask; otherwise the plan counts as approved. Texts such as "true" count (templated)
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "wanted")

    def __init__(self, *, wanted: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wanted = wanted

    def execute(self, context: Context) -> Any:
        """Ask, where that is wished."""
        if str(self.wanted).strip().lower() not in ("true", "1", "yes"):
            self.log.info("Nobody is asked")
            return None
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on when it was approved; else this task and those after it are skipped."""
        # Above the class that skips tasks downstream itself, which it can't where they are mapped.
        answer = super(ApprovalOperator, self).execute_complete(context=context, event=event)
        chosen = answer.get("chosen_options") if isinstance(answer, Mapping) else None
        if chosen != [self.APPROVE]:
            raise AirflowSkipException(f"The plan was not approved: {chosen}")
        return answer
