"""Causes the demo's two interruptions and measures how the run steps forward from each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from everstep_sandbox.demo.run_view import Attempt, RunView

TIERS = ("local", "peer", "backup", "durable", "fresh")
"""Where a node can find its state again, from the nearest to nowhere."""


class RunEnded(RuntimeError):
    """The run ended, or stood still, before what the demo waits for."""


@dataclass(frozen=True)
class Interruption:
    """One interruption as it was measured. Times are seconds from the moment of the fault."""

    kind: str
    at_step: int
    restored_step: int | None
    restored_tier: str
    restored_tiers: tuple[str, ...]
    """By rank: the survivors restore from their own RAM disk, newcomers from a peer's."""
    lost_steps: int
    seconds_to_pods_running: float
    seconds_to_next_step: float
    hot_swap: bool
    nodes_before: tuple[str, ...]
    nodes_after: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Interrupter:
    """Waits for the right moment, causes a fault, and measures until the next step is done."""

    def __init__(
        self, view: RunView, *, nodes: int, progress: Callable[[str], None], check: Callable[[], None]
    ) -> None:
        self._view = view
        self._nodes = nodes
        self._progress = progress
        self._check = check
        """Raises when the DAG run has ended: then there is nothing to wait for."""

    def wait_for(self, what: str, condition: Callable[[], bool], *, timeout: float = 240) -> None:
        """Waits until ``condition`` holds; raises :class:`RunEnded` when the run ends or nothing happens in time."""
        deadline = time.monotonic() + timeout
        shown = 0.0
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise RunEnded(f"waited {timeout:.0f} s for {what}; the run's status is {self._view.status()}")
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                self._progress(f"{what}: {describe(self._view.status())}")
            time.sleep(0.25)

    def interrupt(self, kind: str, fault: Callable[[], None], *, held_by_others: frozenset[str]) -> Interruption:
        """Causes ``fault`` and returns what came of it once the run has done its next step.

        :param held_by_others: nodes that lower-priority work holds now; taking one of them is a hot swap
        """
        before = self._view.attempt()
        if before is None:
            raise RunEnded(f"{self._view.run}: there is no JobSet to interrupt")
        nodes_before = self._view.running_nodes(before)
        at = time.time()
        fault()
        after = before
        nodes_after: set[str] = set()

        def pods_running() -> bool:
            nonlocal after, nodes_after
            after = self._view.attempt() or before
            nodes_after = self._view.running_nodes(after) if after != before else set()
            return len(nodes_after) == self._nodes

        self.wait_for("restarting", pods_running)
        running = time.time() - at
        self._progress(f"all pods run again after {running:.1f} s, on {', '.join(sorted(nodes_after))}")

        reports: list[dict[str, Any]] = []

        def stepped() -> bool:
            reports[:] = self._view.node_reports(self._view.attempt() or after)
            return len(reports) == self._nodes and all(report.get("first_step_at") for report in reports)

        self.wait_for("restoring", stepped)
        next_step = max(_seconds(report["first_step_at"]) for report in reports) - at
        return self._measured(kind, before, reports, running, next_step, nodes_before, nodes_after, held_by_others)

    def _measured(
        self,
        kind: str,
        before: Attempt,
        reports: list[dict[str, Any]],
        running: float,
        next_step: float,
        nodes_before: set[str],
        nodes_after: set[str],
        held_by_others: frozenset[str],
    ) -> Interruption:
        reached = [int(report.get("last_step") or 0) for report in self._view.node_reports(before)]
        tiers = tuple(str(report["restored_tier"]) for report in reports)
        steps = {report["restored_step"] for report in reports}
        if len(steps) != 1:
            raise RunEnded(f"{self._view.run}: the nodes restored different steps: {sorted(steps, key=str)}")
        restored = steps.pop()
        # The last report of a node that was killed may be a moment older than its last save.
        at_step = max([*reached, restored or 0])
        return Interruption(
            kind=kind,
            at_step=at_step,
            restored_step=restored,
            restored_tier=max(tiers, key=TIERS.index),
            restored_tiers=tiers,
            lost_steps=at_step - (restored or 0),
            seconds_to_pods_running=round(running, 2),
            seconds_to_next_step=round(next_step, 2),
            hot_swap=bool(nodes_after & held_by_others),
            nodes_before=tuple(sorted(nodes_before)),
            nodes_after=tuple(sorted(nodes_after)),
        )


def describe(status: dict[str, Any]) -> str:
    """One status for people."""
    if not status:
        return "no report yet"
    loss = status.get("loss")
    shown = f", loss {float(loss):.4f}" if loss is not None else ""
    return f"{status['phase']} at step {status.get('step') or 0} of {status.get('final_step')}{shown}"


def _seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text.replace("Z", "+00:00")).astimezone(UTC).timestamp()
