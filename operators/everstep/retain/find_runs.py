"""The operator that finds the runs that retention looks after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from everstep.telling import parse_overrides, told

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.spec.cluster import ClusterSpec


class FindRunsOperator(BaseOperator):
    """Find all runs in the buckets of cluster files. Returns arguments for `expand_kwargs` of retention's operators.

    A run whose run file is beside the DAG is dealt with as that says; others as `retention` says.

    :param clusters: paths of cluster files beside the DAG file
    :param runs: a folder of run files beside the DAG file
    :param retention: of runs without a run file: as in run files, as a mapping or its JSON; the defaults without it
        (templated)
    :param only: names of runs, as a list or joined by commas; all if empty (templated)
    """

    template_fields: Sequence[str] = ("only", "retention")
    template_ext: Sequence[str] = ()
    ui_color = "#dfe9f5"

    def __init__(
        self,
        *,
        clusters: Sequence[str],
        runs: str = "runs",
        only: Sequence[str] | str | None = None,
        retention: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.clusters = clusters
        self.runs = runs
        self.only = only
        self.retention = retention

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List the buckets."""
        from everstep.retain import target
        from everstep.spec.cluster import ClusterSpec

        dag_file = Path(self.dag.fileloc) if self.has_dag() else Path.cwd() / "dag.py"
        clusters = told(lambda: [(path, ClusterSpec.from_yaml(dag_file.parent / path)) for path in self.clusters])
        files, wrong = target.read_run_files(dag_file, self.runs)
        for line in wrong:
            self.log.warning("left out: %s", line)
        runs_of: dict[str, list[str]] = {}
        for _, cluster in clusters:
            for bucket in target.buckets_of(cluster):
                if bucket not in runs_of:
                    runs_of[bucket] = self._runs_in(cluster, bucket)
        self._check_wanted(runs_of)
        retention = told(lambda: target.retention_of(parse_overrides(self.retention)))
        found = target.targets(clusters, runs_of, files, retention)
        self.log.info("%d runs: %s", len(found), ", ".join(each["run"] for each in found) or "none")
        return found

    def _runs_in(self, cluster: ClusterSpec, bucket: str) -> list[str]:
        from everstep.clients.access import StorageAccess
        from everstep.retain.target import runs_in

        client = StorageAccess.of(cluster).open(bucket)
        runs = told(lambda: client.run(runs_in(bucket), at_once=8))
        wanted = self._wanted()
        return [run for run in runs if not wanted or run in wanted]

    def _wanted(self) -> set[str]:
        only = self.only.split(",") if isinstance(self.only, str) else self.only or ()
        return {name.strip() for name in only} - {""}

    def _check_wanted(self, runs_of: Mapping[str, Sequence[str]]) -> None:
        """Fail for a run that was named and is nowhere: none found would look like nothing to sweep."""
        absent = sorted(self._wanted() - {run for runs in runs_of.values() for run in runs})
        if absent:
            buckets = ", ".join(f"gs://{bucket}" for bucket in runs_of) or "no bucket of any cluster file"
            raise AirflowFailException(
                f"no run {', '.join(absent)} in {buckets}; expected the names of runs, whose folders have an "
                "everstep/run.json; remedy: check the names, or leave them away for all runs"
            )
