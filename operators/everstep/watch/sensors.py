"""Sensors of a run's checkpoints: a complete backup that is new enough, and a restore that every node has done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.run_operator import RunOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.spec.training import TrainingSpec
    from everstep.watch.sensor_triggers import SensorTrigger


class _RunSensor(RunOperator):
    """A wait for something about a run.

    :param poke_interval: least seconds between looks at the bucket; backups are looked for at their own rhythm
    :param timeout: seconds after which the sensor fails; a deadline that restarts and deferrals don't move
    :param deferrable: wait in the triggerer; False waits in the worker
    """

    ui_color = "#e6f1f2"

    def __init__(
        self, *, poke_interval: float = 30.0, timeout: float = 7 * 24 * 3600.0, deferrable: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.poke_interval = poke_interval
        self.timeout = timeout
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait."""
        spec = self.spec()
        self.show_links(context, spec)
        trigger = self.trigger(spec, time.time() + self.timeout)
        if self.deferrable:
            self.defer(trigger=trigger, method_name="execute_complete")
        return self.execute_complete(context, asyncio.run(trigger.wait()))

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what was found."""
        event = event or {}
        if event.get("kind") == "found":
            self.log.info("%s", event["message"])
            return dict(event["result"])
        if event.get("kind") == "deadline":
            message = f"not seen within {self.timeout:g} s: {event.get('message')}"
            raise AirflowFailException(self.explained(self.spec(), message))
        raise AirflowException(f"can't look: {event.get('message')}")

    def trigger(self, spec: TrainingSpec, deadline: float) -> SensorTrigger:
        """Return the wait."""
        raise NotImplementedError


class CheckpointSensor(_RunSensor):
    """Wait for a complete backup or durable save of a run at a step of at least `min_step`.

    Returns step, tier (backup or durable) and name.

    :param min_step: the least step (templated)
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "min_step")

    def __init__(self, *, min_step: int | str = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_step = min_step

    def trigger(self, spec: TrainingSpec, deadline: float) -> SensorTrigger:
        """Return the wait."""
        from everstep.watch.sensor_triggers import CheckpointTrigger

        return CheckpointTrigger(
            storage=StorageAccess.of(spec.cluster_spec).as_dict(),
            bucket=spec.bucket,
            run_name=spec.name,
            nodes=spec.nodes,
            data_parallelism=spec.data_parallelism,
            min_step=int(self.min_step),
            deadline=deadline,
            poke_interval=self.poke_interval,
        )


class RestoreSensor(_RunSensor):
    """Wait until every node of a run's present attempt has reported what it restored.

    Returns launch, restart, step (None for a fresh start), tier (the farthest one that any node needed) and tiers
    (how many nodes from which).

    :param min_restart: attempts of a lower restart count don't count (templated)
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "min_restart")

    def __init__(self, *, min_restart: int | str = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_restart = min_restart

    def trigger(self, spec: TrainingSpec, deadline: float) -> SensorTrigger:
        """Return the wait."""
        from everstep.watch.sensor_triggers import RestoreTrigger

        return RestoreTrigger(
            cluster=ClusterAccess.of(spec.cluster_spec).resolved().as_dict(),
            storage=StorageAccess.of(spec.cluster_spec).as_dict(),
            bucket=spec.bucket,
            run_name=spec.name,
            namespace=spec.cluster_spec.namespace,
            nodes=spec.nodes,
            min_restart=int(self.min_restart),
            deadline=deadline,
            poke_interval=self.poke_interval,
        )
