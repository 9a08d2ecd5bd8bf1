"""The operator that plans retention for one run. It changes nothing in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.run_operator import RunOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.checkpoints.catalogue import Shape
    from everstep.clients.run_folder import RunContents
    from everstep.retain.policy import Policy
    from everstep.spec.training import RetentionSpec


class PlanRetentionOperator(RunOperator):
    """Decide which backups of a run its retention policy would sweep, and say why. A dry run: nothing is removed.

    Backups are judged by the shape that ``run.json`` recorded at the launch. Returns the plan as a dictionary: bucket,
    run, made_at, policy, hash, and the lists ``keep`` and ``sweep`` of {name, step, state, reasons}.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the run's folder and decide."""
        from datetime import UTC, datetime

        from everstep.checkpoints.layout import RunFolder
        from everstep.clients import run_folder
        from everstep.retain import plan

        spec = self.spec()
        self.show_links(context, spec)
        bucket = self.bucket_client(spec)
        folder = RunFolder(spec.bucket, spec.name)
        now = datetime.now(UTC)
        records = self.told(lambda: bucket.run(run_folder.records(folder)))
        shape = _recorded_shape(folder.url(folder.run_record), records.get("run.json"))
        contents: RunContents = self.told(lambda: bucket.run(run_folder.contents(folder, shape, now=now)))
        try:
            made = plan.make(
                contents.catalogue,
                policy_of(spec.retention),
                bucket=spec.bucket,
                now=now,
                forced_restore=contents.forced,
            )
        except plan.RetentionRefused as refused:
            raise AirflowFailException(str(refused)) from refused
        for line in made.as_table().splitlines():
            self.log.info("%s", line)
        self.log.info("Dry run: %d would stay, %d would be swept.", len(made.kept), len(made.swept))
        return made.as_dict()


def policy_of(retention: RetentionSpec) -> Policy:
    """The policy that a run file's ``retention`` describes."""
    from everstep.retain.policy import PERIODS, Policy

    counts = retention.model_dump()
    return Policy({period: counts[period] for period in PERIODS}, keep_last=retention.keep_last)


def _recorded_shape(where: str, record: dict[str, Any] | None) -> Shape:
    from everstep.checkpoints.catalogue import Shape

    try:
        return Shape(record["nodes"], record["workers_per_node"], record["data_parallelism"])  # type: ignore[index]
    except (KeyError, TypeError) as missing:
        raise AirflowFailException(
            f"{where} does not say the run's shape (found {record!r}; expected nodes, workers_per_node and "
            "data_parallelism), so its backups can't be judged. Launch the run by LaunchTrainingOperator, which "
            "writes it."
        ) from missing
