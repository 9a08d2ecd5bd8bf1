"""A training run as a group of ordinary tasks, from preflight to the retention plan.

Each task can also be used alone; the group is the order in which they belong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskGroup, XComArg, chain

from everstep.launch.operator import LaunchTrainingOperator
from everstep.provision.operators import PreflightOperator
from everstep.resume.gate import FinalStepGateOperator
from everstep.retain.operator import PlanRetentionOperator

if TYPE_CHECKING:
    from everstep.spec.training import TrainingSpec


def resilient_training(
    run: TrainingSpec | str | Path,
    *,
    overrides: Mapping[str, Any] | str | None = None,
    group_id: str | None = None,
) -> XComArg:
    """Adds the tasks of one training run to the current DAG and returns what ``launch`` found the run came to.

    :param run: a spec, or the path of a run file beside the DAG file; may be a template
    :param overrides: settings that win over the run file, e.g. ``{"final_step": 500}``; may be a template
    :param group_id: puts the tasks into a task group of this name, for DAGs with several runs
    """
    if group_id is not None:
        with TaskGroup(group_id):
            return _tasks(run, overrides)
    return _tasks(run, overrides)


def _tasks(run: TrainingSpec | str | Path, overrides: Mapping[str, Any] | str | None) -> XComArg:
    what: dict[str, Any] = {"run": run, "overrides": overrides}
    preflight = PreflightOperator(task_id="preflight", **what)
    launch = LaunchTrainingOperator(task_id="launch", **what)
    gate = FinalStepGateOperator(task_id="gate", **what)
    # A training that has finished does not fail because its backups are not to be planned for.
    plan_retention = PlanRetentionOperator(task_id="plan_retention", fail_on_refusal=False, **what)
    chain(preflight, launch, gate, plan_retention)
    outcome: XComArg = launch.output
    return outcome
