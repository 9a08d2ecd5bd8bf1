"""The story of a run, in sentences for the task's log. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from everstep.watch.progress import Report, cause_in

Attempts = Mapping[tuple[int, int], Sequence[Report]]


@dataclass(frozen=True)
class AttemptStory:
    """One attempt as its nodes reported it. `restored_step` is None for a fresh start."""

    launch: int
    restart: int
    nodes: int
    restored_step: int | None
    tiers: dict[str, int]
    last_step: int | None
    ended: str
    seconds_to_first_step: float | None

    @property
    def tier(self) -> str:
        """Return the farthest tier that any node restored from, which names the restore as a whole."""
        for tier in ("durable", "backup", "peer", "local", "fresh"):
            if self.tiers.get(tier):
                return tier
        return "unknown"

    @property
    def start(self) -> str:
        """Return what the attempt started from, in words."""
        if self.tier == "fresh":
            return "started from nothing"
        parts = ", ".join(f"{count} from {tier}" for tier, count in sorted(self.tiers.items()))
        return f"restored step {self.restored_step} ({parts})"

    def __str__(self) -> str:
        where = f"launch {self.launch}, restart {self.restart}"
        if self.tier == "unknown":
            return f"{where}: no node has reported a restore"
        start = self.start
        if self.seconds_to_first_step is not None:
            start += f", first step after {self.seconds_to_first_step:.1f} s"
        end = f", reached step {self.last_step}" if self.last_step is not None else ""
        return f"{where}: {start}{end}{f'; {self.ended}' if self.ended else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for XCom."""
        return {**asdict(self), "tier": self.tier}


def of_attempts(attempts: Attempts) -> list[AttemptStory]:
    """Return the stories of all attempts, oldest first."""
    return [_attempt(launch, restart, reports) for (launch, restart), reports in sorted(attempts.items())]


def lost_steps(stories: Sequence[AttemptStory]) -> list[tuple[AttemptStory, int]]:
    """Return each attempt that restored after another one, with the steps that were done twice."""
    lost = []
    reached = 0
    for story in stories:
        if story.tier not in ("unknown",) and reached and story is not stories[0]:
            lost.append((story, max(reached - (story.restored_step or 0), 0)))
        reached = max(reached, story.last_step or 0)
    return lost


def tell(attempts: Attempts) -> list[str]:
    """Return the story in lines."""
    stories = of_attempts(attempts)
    lines = [str(story) for story in stories]
    repeated = sum(steps for _, steps in lost_steps(stories))
    if len(stories) > 1:
        lines.append(f"{len(stories)} attempts in all, {repeated} steps done twice")
    return lines


def _attempt(launch: int, restart: int, reports: Sequence[Report]) -> AttemptStory:
    tiers = Counter(str(report["restored_tier"]) for report in reports if report.get("restored_tier"))
    restored = [report["restored_step"] for report in reports if isinstance(report.get("restored_step"), int)]
    last = [report["last_step"] for report in reports if isinstance(report.get("last_step"), int)]
    firsts = [
        sum(float(seconds) for seconds in report["phases"].values())
        for report in reports
        if isinstance(report.get("phases"), Mapping) and report["phases"].get("first_step") is not None
    ]
    cause = cause_in(reports)
    return AttemptStory(
        launch=launch,
        restart=restart,
        nodes=len(reports),
        restored_step=max(restored, default=None),
        tiers=dict(tiers),
        last_step=max(last, default=None),
        ended=f"ended with {cause.summary}" if cause else "",
        seconds_to_first_step=max(firsts, default=None),
    )
