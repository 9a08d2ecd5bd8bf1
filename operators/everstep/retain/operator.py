"""Operators of one run's retention: plan, which changes nothing, and sweep, a dry run unless told to apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    Asset,
    AssetAlias,
)

from everstep.links import store_links
from everstep.run_operator import RunOperator
from everstep.telling import is_true

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.clients.storage import BucketClient
    from everstep.retain.plan import RetentionPlan
    from everstep.retain.sweep_report import SweepReport
    from everstep.retain.target import Target
    from everstep.spec.findings import Finding

Value = TypeVar("Value")
SWEPT = AssetAlias("everstep-retention")
"""Gets an event for each run that a sweep took something of, or emptied the trash of: asset `gs://bucket/run`."""


class RetentionRefusedError(AirflowFailException):
    """A plan that may not be made or applied, or a sweep that stopped: somebody has to look. Carries all findings."""

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class RetentionOperator(RunOperator):
    """An operator of one run's retention.

    :param run: a spec, the path of a run file beside the DAG file, or `gs://bucket/run` (templated)
    :param cluster: for a `gs://` run: the path of the cluster file whose connections reach it (templated)
    :param retention: for a `gs://` run: what a run file's `retention` says (templated)
    :param on_refusal: called with the context when retention is refused or stops, before the task fails: a notifier,
        or any function; `context["exception"].findings` says why
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "cluster", "retention")

    def __init__(
        self,
        *,
        cluster: str | None = None,
        retention: Mapping[str, Any] | None = None,
        on_refusal: Callable[[Context], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.retention = retention
        self.on_refusal = on_refusal

    def target(self) -> Target:
        """Return the run. Wrong files fail the task for good, with all findings."""
        from everstep.retain.target import Target
        from everstep.spec.cluster import ClusterSpec

        if isinstance(self.run, str) and self.run.startswith("gs://"):
            url, path, retention = self.run, self.cluster, self.retention
            if not path:
                raise AirflowFailException(
                    f"run {url}: no cluster file is given; expected cluster='clusters/NAME.yaml'"
                )
            beside = Path(self.dag.fileloc).parent if self.has_dag() else Path()
            return self.told(lambda: Target.of_url(url, ClusterSpec.from_yaml(beside / path), retention))
        return Target.of_spec(self.spec())

    def bucket_of(self, target: Target) -> BucketClient:
        """Return a client of the run's bucket."""
        from everstep.clients.access import StorageAccess

        return StorageAccess.of(target.cluster).open(target.bucket)

    def show_target(self, context: Context, target: Target) -> None:
        """Put the run's links on the task."""
        store_links(context, target.cluster, run=target.run, bucket=target.bucket)

    def not_refused(self, context: Context, act: Callable[[], Value]) -> Value:
        """Do something; a refusal is told to `on_refusal` and fails the task without retries."""
        from everstep.launch.lease import LeaseHeldError
        from everstep.retain.plan import RetentionRefused
        from everstep.retain.sweep_report import SweepStopped

        def acted() -> Value:
            try:
                return act()
            except LeaseHeldError as held:
                # Somebody launches, resumes or sweeps the run now: that passes.
                raise AirflowException(str(held)) from held
            except (RetentionRefused, SweepStopped) as refused:
                failure = RetentionRefusedError(str(refused), refused.findings)
                self._tell(context, failure)
                raise failure from refused

        return self.told(acted)

    def _tell(self, context: Context, failure: RetentionRefusedError) -> None:
        if self.on_refusal is None:
            return
        try:
            self.on_refusal({**context, "exception": failure})
        except Exception:
            self.log.exception("on_refusal failed; the refusal stands")


class PlanRetentionOperator(RetentionOperator):
    """Decide which backups of a run its retention policy would sweep, and say why. A dry run: nothing is removed.

    Backups are judged by the shape that ``run.json`` recorded at the launch. Returns the plan as a dictionary, as
    `everstep.retain.plan.verify` reads it: bucket, run, made_at, policy, hash, and ``units`` of {kind, name, step,
    state, decision, reasons, …}. The XCom `summary` holds a sentence for people, `sweeps` how much would go.

    :param fail_on_refusal: whether the task fails when no plan may be made. Otherwise that is a warning, in the log and
        as the result: {bucket, run, refused, findings}, which no sweep takes
    """

    def __init__(self, *, fail_on_refusal: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fail_on_refusal = fail_on_refusal

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the run's folder and decide."""
        from everstep.retain import report

        target = self.target()
        self.show_target(context, target)
        try:
            plan = self.not_refused(context, lambda: self._plan(target))
        except AirflowFailException as refused:
            if self.fail_on_refusal:
                raise
            return self._warn(context, target, refused)
        for line in report.table(plan).splitlines():
            self.log.info("%s", line)
        self.log.info("Dry run: %s", report.summary(plan))
        context["ti"].xcom_push("summary", report.summary(plan))
        context["ti"].xcom_push("sweeps", len(plan.swept))
        return plan.as_dict()

    def _plan(self, target: Target) -> RetentionPlan:
        from datetime import UTC, datetime

        from everstep.retain import of_spec, planning

        return planning.plan_run(
            self.bucket_of(target),
            target.run,
            of_spec.policy(target.retention),
            now=datetime.now(UTC),
            settings=of_spec.settings(target.retention),
        )

    def _warn(self, context: Context, target: Target, refused: AirflowFailException) -> dict[str, Any]:
        findings = [each.as_dict() for each in getattr(refused, "findings", ())]
        self.log.warning("No retention plan, and nothing is swept; this task goes on: %s", refused)
        context["ti"].xcom_push("summary", f"{target.run}: no retention plan: {refused}")
        context["ti"].xcom_push("sweeps", 0)
        return {"bucket": target.bucket, "run": target.run, "refused": str(refused), "findings": findings}


class SweepOperator(RetentionOperator):
    """Apply a retention plan: a dry run, unless `apply` is true.

    What goes can be had back from the trash for as long as the run's `retention.trash_hours` say; the sweep after that
    empties it. A task that was killed goes on where it stopped. Returns the report as a dictionary: swept, already,
    skipped (with reasons), left, trash, emptied, …; a dry run returns what would go as `would_sweep`. Each run that
    something was swept of, or trash emptied, gets an event of the asset alias `everstep-retention`, once more if a try
    was killed after it.

    :param plan: what PlanRetentionOperator returned, or its JSON (templated)
    :param apply: whether to do it; texts such as "true" count (templated)
    :param empty_now: empty the trash of this plan at once: nothing can be had back
    :param beside_training: sweep also while the run's training lives; what it would restore stays in any case
    :param objects_per_second: how many objects and folders are changed at most
    """

    template_fields: Sequence[str] = (
        *RetentionOperator.template_fields,
        "plan",
        "apply",
        "empty_now",
        "beside_training",
    )

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        apply: bool | str = False,
        empty_now: bool | str = False,
        beside_training: bool | str = False,
        objects_per_second: float = 500.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("outlets", [SWEPT])
        super().__init__(**kwargs)
        self.plan = plan
        self.apply = apply
        self.empty_now = empty_now
        self.beside_training = beside_training
        self.objects_per_second = objects_per_second

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify the plan; then say what would go, or let it go."""
        from everstep.retain import plan as plans
        from everstep.retain import report

        target = self.target()
        self.show_target(context, target)
        plan = self.not_refused(context, lambda: plans.verify(self.plan))
        if not is_true(self.apply):
            for unit in plan.swept:
                self.log.info("would sweep %s: %s", unit.name, "; ".join(unit.reasons))
            self.log.info("Dry run: %s", report.summary(plan))
            return {"run": plan.run, "plan": plan.hash, "would_sweep": [unit.name for unit in plan.swept]}
        done = self.not_refused(context, lambda: self._sweep(context, target, plan))
        if done.left:
            self.log.warning("%d objects are left, which the bucket does not let go", len(done.left))
        if done.has_swept:
            self._announce(context, done)
        return done.as_dict()

    def _sweep(self, context: Context, target: Target, plan: RetentionPlan) -> SweepReport:
        from everstep.clients.access import ClusterAccess
        from everstep.launch.operator import holder_of
        from everstep.retain import sweep
        from everstep.retain.plan import RetentionRefused
        from everstep.retain.sweep_report import SweepSettings
        from everstep.spec.findings import error

        if (plan.bucket, plan.run) != (target.bucket, target.run):
            found, expected = f"gs://{plan.bucket}/{plan.run}", f"gs://{target.bucket}/{target.run}"
            raise RetentionRefused(
                "the plan is not applied", [error("plan", f"a plan of {found}", f"one of {expected}")]
            )
        settings = SweepSettings(
            trash_age=sweep.trash_age(plan),
            empty_now=is_true(self.empty_now),
            told=lambda line: self.log.info("%s", line),
        )
        return sweep.apply(
            self.bucket_of(target),
            plan,
            cluster=ClusterAccess.of(target.cluster).open(),
            holder=holder_of(context),
            settings=settings,
            objects_per_second=self.objects_per_second,
            beside_training=is_true(self.beside_training),
        )

    def _announce(self, context: Context, done: SweepReport) -> None:
        events: Any = context.get("outlet_events")
        if events is None or SWEPT not in (self.outlets or ()):
            return
        # Airflow 2.11 hashes the values, so they are no lists; readers find lists.
        extra = {
            "plan": done.plan,
            "swept": tuple(done.gone),
            "emptied": tuple(done.emptied),
            "swept_bytes": done.swept_bytes,
        }
        events[SWEPT].add(Asset(f"gs://{done.bucket}/{done.run}"), extra=extra)
