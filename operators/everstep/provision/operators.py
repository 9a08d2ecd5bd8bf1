"""The operator that comes before a launch: preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.run_operator import RunOperator
from everstep.spec.findings import raise_on_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.spec.findings import Finding
    from everstep.spec.training import TrainingSpec


class PreflightOperator(RunOperator):
    """Check everything about a run that can be known before it is launched; changes nothing.

    Fails with all findings when one of them is an error. Returns the findings as a list of dictionaries.
    """

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Run all checks."""
        spec = self.spec()
        self.show_links(context, spec)
        findings = self.told(lambda: self._findings(spec))
        self.log_findings(findings)
        self.told(lambda: raise_on_errors(f"preflight of run {spec.name!r}", findings))
        return [finding.as_dict() for finding in findings]

    def _findings(self, spec: TrainingSpec) -> list[Finding]:
        from everstep.provision import preflight

        with self.cluster_client(spec) as cluster:
            return preflight.check(preflight.Subject(spec, cluster, self.bucket_client(spec)))
