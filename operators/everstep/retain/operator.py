"""The operator that plans retention for one run. It changes nothing in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.run_operator import RunOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class PlanRetentionOperator(RunOperator):
    """Decide which backups of a run its retention policy would sweep, and say why. A dry run: nothing is removed.

    Backups are judged by the shape that ``run.json`` recorded at the launch. Returns the plan as a dictionary, as
    `everstep.retain.plan.verify` reads it: bucket, run, made_at, policy, hash, and ``units`` of {kind, name, step,
    state, decision, reasons, …}.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the run's folder and decide."""
        from datetime import UTC, datetime

        from everstep.retain import of_spec, planning, report
        from everstep.retain.plan import RetentionRefused

        spec = self.spec()
        self.show_links(context, spec)
        bucket = self.bucket_client(spec)
        try:
            plan = self.told(
                lambda: planning.plan_run(
                    bucket,
                    spec.name,
                    of_spec.policy(spec.retention),
                    now=datetime.now(UTC),
                    settings=of_spec.settings(spec.retention),
                )
            )
        except RetentionRefused as refused:
            raise AirflowFailException(str(refused)) from refused
        for line in report.table(plan).splitlines():
            self.log.info("%s", line)
        self.log.info("Dry run: %s", report.summary(plan))
        return plan.as_dict()
