"""Base of the operators that deal with a cluster file: reads it where the task runs, and carries its steps out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

from everstep.telling import log_findings, parse_overrides, told

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.doctor.diagnosis import Diagnosis
    from everstep.doctor.evidence import Evidence
    from everstep.provision.changes import Mode, Step, Waiting
    from everstep.provision.site import Site
    from everstep.provision.steps import Report
    from everstep.spec.cluster import ClusterSpec

GRACE = timedelta(minutes=5)


class ClusterOperator(BaseOperator):
    """Bring a part of what a cluster file describes about; subclasses say which steps that takes.

    Every step looks before it changes anything, so that a task that was killed goes on where things stand, and a task
    that has nothing to do changes nothing. Returns a dictionary: mode, findings, done, left.

    :param cluster: a cluster file's content, or its path beside the DAG file (templated)
    :param mode: `check` looks only, `emit` also logs commands and Terraform, `apply` does it (templated)
    :param overrides: settings that win over the cluster file, as a mapping or JSON (templated)
    :param deferrable: wait for long operations in the triggerer; False waits in the worker
    """

    template_fields: Sequence[str] = ("cluster", "mode", "overrides")
    template_ext: Sequence[str] = ()
    ui_color = "#e4efe1"

    def __init__(
        self,
        *,
        cluster: ClusterSpec | str | Path,
        mode: str = "check",
        overrides: Mapping[str, Any] | str | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.mode = mode
        self.overrides = overrides
        self.deferrable = deferrable

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        """Look; in mode `apply`, also change what differs and wait for it."""
        from everstep.provision.changes import Mode
        from everstep.provision.steps import Report

        mode = told(lambda: _mode(self.mode))
        if mode is not Mode.APPLY:
            return self._survey(mode)
        return self._apply(Report(mode))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after a wait; fails when what was waited for has failed."""
        from everstep.provision.steps import Report

        report = Report.of(event["report"])
        if event["kind"] != "done":
            raise AirflowException(self._explained(event["message"]))
        self.log.info("%s", event["message"])
        return self._apply(report)

    def site(self) -> Site:
        """Return the cluster file with the ways to what it describes. Raises FindingsError with all mistakes."""
        from everstep.provision.site import load_site

        beside = Path(self.dag.fileloc) if self.has_dag() and self.dag.fileloc else None
        return load_site(self.cluster, parse_overrides(self.overrides), beside=beside)

    def _survey(self, mode: Mode) -> dict[str, Any]:
        from everstep.provision.changes import Mode
        from everstep.provision.steps import survey
        from everstep.spec.findings import raise_on_errors

        with told(self.site) as site:
            report = told(lambda: survey(self.steps(site), mode))
        log_findings(self.log, report.findings)
        for change in report.left:
            self.log.info("%s", change)
            if mode is Mode.EMIT:
                for text in (*change.commands, change.terraform):
                    if text:
                        self.log.info("\n%s", text)
        told(lambda: raise_on_errors(f"{self.task_id} found errors", report.findings))
        if not report.left:
            self.log.info("nothing is left to do: all is as the cluster file says")
        return report.as_dict()

    def _apply(self, report: Report) -> dict[str, Any]:
        from everstep.provision.steps import advance

        with told(self.site) as site:
            access = site.access()
            for step in self.steps(site):
                while (waiting := told(lambda step=step: advance(step, report, self.log.info))) is not None:  # type: ignore[misc]
                    self._wait(waiting, access, report)
        log_findings(self.log, report.findings)
        return report.as_dict()

    def _wait(self, waiting: Waiting, access: Mapping[str, Any], report: Report) -> None:
        from everstep.provision.triggers import ProvisioningTrigger

        deadline = time.time() + waiting.seconds
        if self.deferrable:
            trigger = ProvisioningTrigger(
                waiting=waiting.as_dict(), access=access, report=report.as_dict(), deadline=deadline
            )
            # The trigger keeps the deadline; Airflow's own is for a triggerer that never comes back.
            self.defer(
                trigger=trigger,
                method_name="execute_complete",
                timeout=timedelta(seconds=waiting.seconds) + GRACE,
            )
        import asyncio

        from everstep.provision.waits import wait_for

        event = asyncio.run(wait_for(waiting, access, deadline))
        if event["kind"] != "done":
            raise AirflowException(self._explained(event["message"]))
        self.log.info("%s", event["message"])

    def _explained(self, message: str) -> str:
        """Return why a wait failed, with what the doctor says of the cluster."""
        from everstep.doctor.live import ATTACHED_LOG_LINES, ATTACHED_SECONDS, examine_site, explained

        def look() -> tuple[Evidence, list[Diagnosis]]:
            with self.site() as site:
                return examine_site(site, seconds=ATTACHED_SECONDS, log_lines=ATTACHED_LOG_LINES)

        return explained(message, look)


def _mode(text: str) -> Mode:
    from everstep.provision.changes import Mode
    from everstep.spec.findings import FindingsError, error

    try:
        return Mode(text)
    except ValueError:
        raise FindingsError("the mode is unknown", [error("mode", repr(text), f"one of {', '.join(Mode)}")]) from None
