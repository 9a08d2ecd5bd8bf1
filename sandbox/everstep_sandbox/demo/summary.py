"""What the demo ends with: a summary for people on the terminal, and the same for programs in ``summary.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.checkpoints.catalogue import Catalogue
from everstep_sandbox.demo.comparison import Outcome
from everstep_sandbox.demo.interruptions import Interruption
from everstep_sandbox.demo.provisioning import Provisioned

TIER_WORDS = {
    "local": "the nodes' own RAM disks",
    "peer": "a peer's RAM disk",
    "backup": "the backup in the bucket",
    "durable": "the durable save in the bucket",
    "fresh": "nothing: it began anew",
}


@dataclass(frozen=True)
class Summary:
    """Everything that the demo saw. ``problems`` says what is not as it should be; without any, the demo succeeded."""

    run: str
    provisioned: Provisioned | None
    """None where the cluster was furnished."""
    verdict: str
    result: Mapping[str, Any]
    interrupted: Outcome
    uninterrupted: Outcome
    control: Outcome
    interruptions: Sequence[Interruption]
    backups: Catalogue
    retention_plan: Mapping[str, Any]
    final_tier: str
    seconds: float
    speed: float

    @property
    def problems(self) -> list[str]:
        found = []
        if self.provisioned is not None and self.provisioned.left:
            found.append(f"provisioning left {self.provisioned.left} changes to be made")
        if self.verdict != "completed":
            found.append(f"the verdict is {self.verdict!r}, expected 'completed'")
        if self.interrupted != self.uninterrupted:
            found.append(f"interrupted {self.interrupted} and uninterrupted {self.uninterrupted} differ")
        if self.control == self.uninterrupted:
            found.append("the training that skipped a batch ended like the others: the comparison can't tell")
        expected = [("node gone", "peer", True), ("RAM disks wiped", "backup", False)]
        seen = [(one.kind, one.restored_tier, one.hot_swap) for one in self.interruptions]
        if seen != expected:
            found.append(f"interruptions (kind, restored tier, hot swap) were {seen}, expected {expected}")
        newest = self.backups.complete[0].step if self.backups.complete else None
        if newest is not None and newest >= self.interrupted.final_step:
            found.append(f"the newest backup already holds step {newest}: the durable save at the end was not needed")
        if self.final_tier != "durable":
            found.append(f"the final step is in tier {self.final_tier!r}, expected 'durable'")
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "provisioned": self.provisioned.as_dict() if self.provisioned else None,
            "verdict": self.verdict,
            "final_step": self.interrupted.final_step,
            "loss_final": self.interrupted.loss,
            "loss_uninterrupted": self.uninterrupted.loss,
            "weights_final": self.interrupted.weights_sha256,
            "weights_uninterrupted": self.uninterrupted.weights_sha256,
            "bitwise_equal": self.interrupted == self.uninterrupted,
            "loss_with_one_batch_skipped": self.control.loss,
            "weights_with_one_batch_skipped": self.control.weights_sha256,
            "interruptions": [interruption.as_dict() for interruption in self.interruptions],
            "backups": [
                {"name": backup.name, "step": backup.step, "state": backup.state.value}
                for backup in self.backups.backups
            ],
            "final_tier": self.final_tier,
            "retention_plan": dict(self.retention_plan),
            "launch_result": dict(self.result),
            "seconds": round(self.seconds, 1),
            "speed": self.speed,
            "problems": self.problems,
        }

    def write(self, path: Path) -> None:
        """Writes aside and renames, so that a reader never sees half a summary."""
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        os.replace(aside, path)

    def as_text(self) -> str:
        lines = [""]
        if self.provisioned is not None:
            lines.append(
                f"An empty project was provisioned with {self.provisioned.changed} changes in "
                f"{self.provisioned.seconds:.0f} s."
            )
        lines += [
            f"{self.run}: {self.verdict} at step {self.interrupted.final_step}, loss {self.interrupted.loss:.6f}",
        ]
        for number, one in enumerate(self.interruptions, start=1):
            swap = "hot swap onto the lower-priority job's slice; " if one.hot_swap else ""
            lines += [
                f"  {number}. {one.kind} at step {one.at_step}: {swap}all pods ran after "
                f"{one.seconds_to_pods_running:.1f} s,",
                f"     step {one.restored_step} restored from {TIER_WORDS[one.restored_tier]}, {one.lost_steps} steps "
                f"lost, next step after {one.seconds_to_next_step:.1f} s",
            ]
        same = "bitwise equal to" if self.interrupted == self.uninterrupted else "DIFFERENT from"
        differs = "differs, as it must" if self.control != self.uninterrupted else "does NOT differ"
        lines += [
            f"  Final loss and weights are {same} those of the same training without faults",
            f"  (loss {self.uninterrupted.loss:.6f}); with one batch skipped the result {differs}.",
            f"  The final step is safe as a {self.final_tier} save. Backups in the bucket:",
            *(f"     {backup.name}  step {backup.step}  {backup.state.value}" for backup in self.backups.backups),
            f"  Retention (dry run) would keep {self.retention_plan['totals']['kept']} and sweep "
            f"{self.retention_plan['totals']['swept']}.",
            f"  {self.seconds:.0f} s in all; the cluster's long timers ran {self.speed:g} times as fast as real ones.",
        ]
        lines += [f"  NOT AS IT SHOULD BE: {problem}" for problem in self.problems]
        return "\n".join(lines)
