"""What operators of runs and of clusters share: reading what a form gave, and telling of findings and refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.clients.errors import FINAL_REFUSALS, Forbidden, RemoteError, Unauthenticated
from everstep.spec.findings import Finding, FindingsError, Severity, error

Value = TypeVar("Value")
_LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.NOTE: logging.INFO}


def parse_overrides(text: Mapping[str, Any] | str | None) -> Mapping[str, Any] | None:
    """Return overrides as they were given or as a template rendered them: JSON, or what Python shows for None."""
    if not isinstance(text, str):
        return text
    if text.strip() in ("", "None"):
        return None
    try:
        overrides = json.loads(text)
    except ValueError:
        overrides = text
    if overrides is not None and not isinstance(overrides, Mapping):
        raise FindingsError(
            "the overrides can't be read",
            [error("overrides", text[:200], 'a JSON object, such as {"final_step": 500}')],
        )
    return overrides


def is_true(value: bool | str) -> bool:
    """Return a switch as it was given or as a template rendered it: "True", "true", "1" and "yes" are on."""
    return value if isinstance(value, bool) else value.strip().lower() in ("true", "1", "yes")


def told(act: Callable[[], Value]) -> Value:
    """Do something, and let the task fail without retries where another try can't help."""
    try:
        return act()
    except FindingsError as failure:
        raise AirflowFailException(str(failure)) from failure
    except FINAL_REFUSALS as failure:
        raise AirflowFailException(f"{failure.message}{_advice(failure)}") from failure


def log_findings(log: Any, findings: Iterable[Finding]) -> None:
    """Write findings to a task's log, each at its level."""
    for finding in findings:
        log.log(_LEVELS[finding.severity], "%s", finding)


def _advice(failure: RemoteError) -> str:
    if isinstance(failure, Unauthenticated):
        return "; remedy: mend the credentials of the Airflow connection"
    if isinstance(failure, Forbidden):
        return "; remedy: grant the Airflow connection's identity what it is refused (see `everstep permissions`)"
    return ""


def as_flag(value: bool | str) -> bool:
    """Return a flag as it was given or as a template rendered it."""
    return value if isinstance(value, bool) else value.strip().lower() in ("true", "yes", "1")
