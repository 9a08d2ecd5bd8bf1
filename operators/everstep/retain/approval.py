"""Asking a person before a plan is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.retain.operator import PlanRetentionOperator


def approval_of(plan: PlanRetentionOperator, **more: Any) -> Any:
    """Return a task `approve` that shows a plan's summary and waits; None where Airflow has none (before 3.1).

    :param more: further arguments of ApprovePlanOperator, such as `wanted`
    """
    try:
        from everstep.retain.approval_operator import ApprovePlanOperator
    except ImportError:
        return None
    place = f"task_ids='{plan.task_id}', map_indexes=ti.map_index"
    return ApprovePlanOperator(
        task_id="approve",
        subject="Sweep old checkpoints?",
        body=f"{{{{ ti.xcom_pull({place}, key='summary') }}}}\n\nThe plan itself is in the log of `{plan.task_id}`.",
        **more,
    )
