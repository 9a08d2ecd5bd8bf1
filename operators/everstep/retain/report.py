"""A plan for people: a table, a calendar, a sentence, and a page. Pure."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC
from html import escape

from everstep.retain.plan import RetentionPlan, Unit
from everstep.retain.words import amount, counted


def table(plan: RetentionPlan) -> str:
    """Return one line a unit, newest first within each kind."""
    width = max([len(unit.name) for unit in plan.units] + [16]) + 2
    lines = [f"{'name':<{width}}{'step':>9}  {'state':<13}{'size':>10}  {'decision':<9} why"]
    for unit in plan.units:
        step = "-" if unit.step is None else str(unit.step)
        lines.append(
            f"{unit.name:<{width}}{step:>9}  {unit.state:<13}{amount(unit.bytes):>10}  {unit.decision:<9} "
            f"{'; '.join(unit.reasons)}"
        )
    return "\n".join([*lines, *(f"warning: {warning}" for warning in plan.warnings)])


def summary(plan: RetentionPlan) -> str:
    """Return in a sentence what a sweep by this plan would do."""
    totals = plan.totals
    stay = f"{totals.kept} {'stays' if totals.kept == 1 else 'stay'}"
    if not totals.swept:
        return f"{plan.run}: nothing to sweep, {stay}."
    about = "about " if totals.is_estimate else ""
    freed = (
        f"frees {about}{amount(totals.freed_bytes)}" if totals.freed_bytes is not None else "frees an unknown amount"
    )
    if totals.freed_objects is not None:
        freed += f" in {about}{counted(totals.freed_objects, 'object')}"
    unknown = sum(unit.bytes is None for unit in plan.swept)
    if unknown and totals.freed_bytes is not None:
        freed += f", without {unknown} whose size is not known (--measure counts all)"
    text = f"{plan.run}: {stay}, {totals.swept} would be swept; {freed}."
    if not plan.hierarchical:
        text += " The bucket has no folders to rename: what goes can't be had back by everstep retain undo."
    if totals.billed_until is not None:
        text += f" Soft delete bills what is deleted now until {totals.billed_until:%Y-%m-%d %H:%M} UTC"
        text += ", and later by the time that it lies in the trash first." if plan.hierarchical else "."
    return text


def question(plan: RetentionPlan, rows: int = 100) -> str:
    """Return what a person is shown who approves a plan, in Markdown: what goes and why, what that frees, warnings.

    :param rows: so many of those that go are listed, the newest; the rest is counted
    """
    lines = [summary(plan), "", "| goes | step | state | size | why |", "|---|---|---|---|---|"]
    for unit in plan.swept[:rows]:
        step = "" if unit.step is None else str(unit.step)
        why = "; ".join(unit.reasons).replace("|", r"\|")
        lines.append(f"| {unit.name} | {step} | {unit.state} | {amount(unit.bytes)} | {why} |")
    if len(plan.swept) > rows:
        lines += ["", f"and {len(plan.swept) - rows} more"]
    stays = ", ".join(unit.name for unit in plan.kept if unit.state == "complete" and unit.kind != "leftover")
    lines += ["", f"Complete and stays: {stays or 'nothing'}", *(f"\nWarning: {each}" for each in plan.warnings)]
    return "\n".join(
        [*lines, "", f"gs://{plan.bucket}/{plan.run}, plan {plan.hash} of {plan.made_at:%Y-%m-%d %H:%M} UTC"]
    )


def calendar(plan: RetentionPlan) -> str:
    """Return a line for each day that has backups: one sign for each, from midnight on.

    `#` stays, `.` goes, `!` is not complete and stays.
    """
    return "\n".join(
        [f"{day}  {''.join(_sign(unit) for unit in reversed(units))}" for day, units in _days(plan).items()]
        + ["# stays   . goes   ! stays, not complete"]
    )


def page(plan: RetentionPlan) -> str:
    """Return the plan as an HTML page that needs nothing else."""
    cells = "".join(
        f"<tr><th>{escape(day)}</th><td>{''.join(_cell(unit) for unit in reversed(units))}</td></tr>"
        for day, units in _days(plan).items()
    )
    rows = "".join(
        f'<tr class="{unit.decision}"><td>{escape(unit.name)}</td><td>{"" if unit.step is None else unit.step}</td>'
        f"<td>{escape(unit.state)}</td><td>{amount(unit.bytes)}</td><td>{unit.decision}</td>"
        f"<td>{escape('; '.join(unit.reasons))}</td></tr>"
        for unit in plan.units
    )
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in plan.warnings)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Retention of {escape(plan.run)}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }} td, th {{ padding: 2px 8px; text-align: left; }}
i {{ display: inline-block; width: 12px; height: 12px; margin: 1px; background: #2a7; }}
i.sweep {{ background: none; outline: 1px solid #bbb; }} i.other {{ background: #d92; }}
tr.sweep td {{ color: #888; }}
</style>
<h1>{escape(plan.run)}</h1><p>{escape(summary(plan))}</p><ul>{warnings}</ul>
<p>gs://{escape(plan.bucket)}/{escape(plan.run)}, decided {plan.made_at:%Y-%m-%d %H:%M} UTC, plan {plan.hash}</p>
<table class="calendar">{cells}</table>
<table><tr><th>name</th><th>step</th><th>state</th><th>size</th><th>decision</th><th>why</th></tr>{rows}</table>
</html>
"""


def explain(plan: RetentionPlan, name: str) -> str | None:
    """Return why one unit is kept or would go; None when there is none of that name."""
    unit = plan.named(name)
    if unit is None:
        return None
    lines = [f"{unit.prefix}: {unit.state}" + ("" if unit.step is None else f", step {unit.step}")]
    lines += [f"  {'stays' if unit.keep else 'would be swept'}: {reason}" for reason in unit.reasons]
    return "\n".join(lines)


def _days(plan: RetentionPlan) -> dict[str, list[Unit]]:
    days: dict[str, list[Unit]] = defaultdict(list)
    for unit in plan.units:
        if unit.kind == "backup":
            day = unit.name[:10] if unit.time is None else f"{unit.time.astimezone(UTC):%Y-%m-%d}"
            days[day].append(unit)
    return days


def _sign(unit: Unit) -> str:
    if not unit.keep:
        return "."
    return "#" if unit.state == "complete" else "!"


def _cell(unit: Unit) -> str:
    kind = "sweep" if not unit.keep else "keep" if unit.state == "complete" else "other"
    return f'<i class="{kind}" title="{escape(unit.name)}: {escape("; ".join(unit.reasons), quote=True)}"></i>'
