"""The table at the end of provisioning: what was there, what was made or would be, and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

HEADER = ("object", "found", "wanted", "done")


class ProvisioningSummaryOperator(BaseOperator):
    """Put the reports of provisioning's tasks together in one table, in the log and as the returned value.

    :param reports: what the tasks returned (templated)
    """

    template_fields: Sequence[str] = ("reports",)
    template_ext: Sequence[str] = ()
    ui_color = "#e4efe1"

    def __init__(self, *, reports: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reports = reports

    def execute(self, context: Context) -> dict[str, Any]:
        """Put them together; a task that did not run has no report."""
        reports = [report for report in self.reports if report]
        rows = table(reports)
        self.log.info("\n%s", formatted(rows) if rows else "nothing had to be changed")
        return {
            "changed": sum(len(report["done"]) for report in reports),
            "left": sum(len(report["left"]) for report in reports),
            "rows": [dict(zip(HEADER, row, strict=True)) for row in rows],
        }


def table(reports: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return a row for each change that was made, or is left to make."""
    rows = []
    for report in reports:
        for change in report["done"]:
            rows.append((change["object"], change["found"], change["wanted"], f"yes: {change['action']}"))
        for change in report["left"]:
            rows.append((change["object"], change["found"], change["wanted"], f"no: {change['action']}"))
    return rows


def formatted(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of plain text."""
    widths = [max(len(str(row[column])) for row in [HEADER, *rows]) for column in range(len(HEADER))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in [HEADER, *rows]]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
