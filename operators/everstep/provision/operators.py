"""The operator that comes before a launch: preflight."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from everstep.run_operator import RunOperator
from everstep.spec.findings import Finding, raise_on_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.spec.training import TrainingSpec

# A triggerer that is full, or starts, takes a while to take a trigger up.
TRIGGERER_PATIENCE = timedelta(minutes=10)


class PreflightOperator(RunOperator):
    """Check everything about a run that can be known before it is launched; changes nothing.

    Fails with all findings when one of them is an error. Returns the findings as a list of dictionaries.

    :param deferrable: also try the cluster from the triggerer, where the run will be waited for
    """

    def __init__(self, *, deferrable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Run all checks, and leave the last one to the triggerer."""
        spec = self.spec()
        self.show_links(context, spec)
        findings = self.told(lambda: self._findings(spec))
        if self.deferrable:
            self._try_from_triggerer(spec, findings)
        return self._judged(spec.name, findings)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> list[dict[str, str]]:
        """Judge what worker and triggerer found."""
        return self._judged(self.spec().name, [Finding.of(each) for each in event["findings"]])

    def _try_from_triggerer(self, spec: TrainingSpec, findings: list[Finding]) -> None:
        from everstep.clients.access import ClusterAccess
        from everstep.provision.triggers import ReachTrigger

        trigger = ReachTrigger(
            cluster=ClusterAccess.of(spec.cluster_spec).as_dict(), findings=[each.as_dict() for each in findings]
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=TRIGGERER_PATIENCE)

    def _judged(self, run: str, findings: list[Finding]) -> list[dict[str, str]]:
        self.log_findings(findings)
        self.told(lambda: raise_on_errors(f"preflight of run {run!r}", findings))
        return [finding.as_dict() for finding in findings]

    def _findings(self, spec: TrainingSpec) -> list[Finding]:
        from everstep.clients.access import GoogleAccess
        from everstep.provision import preflight

        cluster_spec = spec.cluster_spec
        # Who looks the cluster up in GKE may describe it; others have no business there.
        google = (
            None if cluster_spec.endpoint == "kubeconfig" else GoogleAccess(cluster_spec.kubernetes_connection).open
        )
        with self.cluster_client(spec) as cluster:
            return preflight.check(preflight.Subject(spec, cluster, self.bucket_client(spec), google=google))
