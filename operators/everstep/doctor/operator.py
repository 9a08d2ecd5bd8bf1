"""The operator that looks at a run and says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.run_operator import RunOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.doctor.diagnosis import Diagnosis

LEVELS = ("error", "warning", "note")


class DoctorOperator(RunOperator):
    """Look at a run, its cluster and its bucket, and say what is wrong, why, and what to do. Changes nothing.

    Returns a dictionary: `diagnoses`, the worst first (symptom, severity, confidence, object, cause, evidence, remedy,
    consequences), and `not_looked_at`, what could not be read. Never fails by itself for what it finds.

    :param fail_on: fail when there is a diagnosis of this severity (`error`, `warning` or `note`) or a worse one, or
        of this symptom's id, or of one of several such (templated)
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "fail_on")
    ui_color = "#f5ecdf"

    def __init__(self, *, fail_on: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fail_on = fail_on

    def execute(self, context: Context) -> dict[str, Any]:
        """Look."""
        from everstep.doctor.diagnose import blind_spots
        from everstep.doctor.live import examine_run, report

        wanted = self.told(lambda: _wanted(self.fail_on))
        spec = self.spec()
        self.show_links(context, spec)
        evidence, diagnoses = self.told(lambda: examine_run(spec))
        for line in report(evidence, diagnoses):
            self.log.info("%s", line)
        found = {
            "diagnoses": [each.as_dict() for each in diagnoses],
            "not_looked_at": blind_spots(evidence),
        }
        grave = [each for each in diagnoses if _is_wanted(each, wanted)]
        if grave:
            context["ti"].xcom_push(key="diagnoses", value=found)
            told = "; ".join(each.sentence for each in grave)
            raise AirflowFailException(f"run {spec.name!r} is not well: {told}")
        return found


def _wanted(fail_on: str | Sequence[str] | None) -> frozenset[str]:
    """Return severities and symptoms to fail on. Raises FindingsError when one is unknown."""
    from everstep.doctor.diagnose import SYMPTOMS
    from everstep.spec.findings import FindingsError, error

    words = fail_on.replace(",", " ").split() if isinstance(fail_on, str) else list(fail_on or ())
    words = [word for word in words if word != "None"]
    unknown = [word for word in words if word not in LEVELS and word not in SYMPTOMS]
    if unknown:
        raise FindingsError(
            "fail_on can't be used",
            [error("fail_on", repr(word), f"{', '.join(LEVELS)}, or a symptom of the doctor") for word in unknown],
        )
    return frozenset(words)


def _is_wanted(diagnosis: Diagnosis, wanted: frozenset[str]) -> bool:
    ids = {diagnosis.symptom, *(each.symptom for each in diagnosis.consequences)}
    worst = LEVELS.index(str(diagnosis.severity))
    return bool(ids & wanted) or any(level in wanted and worst <= LEVELS.index(level) for level in LEVELS)
