"""Base of the operators that deal with one run: reads its files where the task runs, and opens its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import BaseOperator

from everstep.links import CheckpointsLink, JobSetLink, store_links
from everstep.telling import log_findings, parse_overrides, told

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.clients.kubernetes import KubernetesClient
    from everstep.clients.storage import BucketClient
    from everstep.spec.findings import Finding
    from everstep.spec.training import TrainingSpec

Value = TypeVar("Value")


def load_spec(
    run: TrainingSpec | str | Path, overrides: Mapping[str, Any] | str | None, *, beside: str | None
) -> TrainingSpec:
    """Return the spec of a run: the given one, or the run file of that path beside the DAG file.

    :param overrides: a mapping, or its JSON as a template renders it. Raises FindingsError with all mistakes
    """
    from everstep.spec.training import TrainingSpec

    overrides = parse_overrides(overrides)
    if not isinstance(run, TrainingSpec):
        return TrainingSpec.from_yaml(run, overrides, beside=Path(beside) if beside else None)
    if not overrides:
        return run
    from everstep.spec.parsing import merge, parse

    data = merge(run.model_dump(mode="json"), overrides)
    return parse(TrainingSpec, data, f"run {run.name!r}").on(run.cluster_spec)


class RunOperator(BaseOperator):
    """An operator of one run.

    :param run: a spec, or the path of a run file beside the DAG file (templated)
    :param overrides: settings that win over the run file, as a mapping or JSON (templated)
    """

    template_fields: Sequence[str] = ("run", "overrides")
    template_ext: Sequence[str] = ()
    operator_extra_links = (JobSetLink(), CheckpointsLink())
    ui_color = "#dfe9f5"

    def __init__(
        self, *, run: TrainingSpec | str | Path, overrides: Mapping[str, Any] | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.run = run
        self.overrides = overrides

    def spec(self) -> TrainingSpec:
        """Return the run's spec. A spec that is wrong fails the task for good, with all findings."""
        beside = self.dag.fileloc if self.has_dag() else None
        return self.told(lambda: load_spec(self.run, self.overrides, beside=beside))

    def told(self, act: Callable[[], Value]) -> Value:
        """Do something, and let the task fail without retries where another try can't help."""
        return told(act)

    def cluster_client(self, spec: TrainingSpec) -> KubernetesClient:
        """Return a client of the run's cluster."""
        from everstep.clients.access import ClusterAccess

        return ClusterAccess.of(spec.cluster_spec).open()

    def bucket_client(self, spec: TrainingSpec) -> BucketClient:
        """Return a client of the run's bucket."""
        from everstep.clients.access import StorageAccess

        return StorageAccess.of(spec.cluster_spec).open(spec.bucket)

    def show_links(self, context: Context, spec: TrainingSpec) -> None:
        """Put the run's links on the task."""
        store_links(context, spec.cluster_spec, run=spec.name, bucket=spec.bucket)

    def explained(self, spec: TrainingSpec, message: str) -> str:
        """Return why something failed, with what the doctor says of the run. Never raises."""
        from everstep.doctor.live import ATTACHED_LOG_LINES, ATTACHED_SECONDS, examine_run, explained

        return explained(message, lambda: examine_run(spec, seconds=ATTACHED_SECONDS, log_lines=ATTACHED_LOG_LINES))

    def log_findings(self, findings: Sequence[Finding]) -> None:
        """Write findings to the task's log, each at its level."""
        log_findings(self.log, findings)
