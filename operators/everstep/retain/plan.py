"""The retention plan of a run: every backup with what happens to it and why. Pure; it deletes nothing.

What can't be judged is kept: directories with unreadable names, backups that may still be uploading, and the target of
a forced restore. A plan that would leave a run with restorable backups without any is never made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from everstep.checkpoints.catalogue import Backup, BackupState, Catalogue
from everstep.retain.policy import Policy, reasons_to_keep

INCOMPLETE_GRACE = timedelta(hours=24)
"""How long an incomplete backup is left alone: its upload may have been interrupted and be looked into."""


class RetentionRefused(RuntimeError):
    """A plan that would put a run's last restorable backup at risk."""


@dataclass(frozen=True)
class PlannedBackup:
    """One backup in a plan; ``reasons`` say why it is kept, or why it may go."""

    name: str
    step: int | None
    state: BackupState
    keep: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RetentionPlan:
    """What a sweep of one run would keep and remove, newest backup first, as decided at ``made_at``."""

    bucket: str
    run: str
    made_at: datetime
    policy: Policy
    backups: tuple[PlannedBackup, ...]

    @property
    def kept(self) -> tuple[PlannedBackup, ...]:
        return tuple(backup for backup in self.backups if backup.keep)

    @property
    def swept(self) -> tuple[PlannedBackup, ...]:
        return tuple(backup for backup in self.backups if not backup.keep)

    def as_dict(self) -> dict[str, Any]:
        """JSON values only, with a hash over what was decided, so that a reviewed plan can be recognised."""
        policy: dict[str, Any] = {str(period): count for period, count in self.policy.periods.items()}
        policy["keep_last"] = self.policy.keep_last
        content = {
            "bucket": self.bucket,
            "run": self.run,
            "made_at": self.made_at.isoformat().replace("+00:00", "Z"),
            "policy": policy,
            "keep": [_backup_as_dict(backup) for backup in self.kept],
            "sweep": [_backup_as_dict(backup) for backup in self.swept],
        }
        decided = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        return {**content, "hash": f"sha256:{hashlib.sha256(decided).hexdigest()}"}

    def as_table(self) -> str:
        """For people: one line a backup, newest first."""
        lines = [f"{'backup':<18}{'step':>9}  {'state':<11} {'decision':<9} why"]
        for backup in self.backups:
            step = "-" if backup.step is None else str(backup.step)
            decision = "keep" if backup.keep else "sweep"
            lines.append(
                f"{backup.name:<18}{step:>9}  {backup.state.value:<11} {decision:<9} {'; '.join(backup.reasons)}"
            )
        return "\n".join(lines)


def make(
    catalogue: Catalogue,
    policy: Policy,
    *,
    bucket: str,
    now: datetime,
    forced_restore: str | None = None,
    pinned: Collection[str] = (),
    incomplete_grace: timedelta = INCOMPLETE_GRACE,
) -> RetentionPlan:
    """Decides over every backup of a run.

    :param now: the time of deciding, aware
    :param forced_restore: the content of the run's ``restore.version``, if there is one
    :param pinned: names that must stay whatever the policy says
    :raises RetentionRefused: if nothing that can be restored would be left although something is there
    """
    by_policy = reasons_to_keep(
        ((backup.name, backup.time) for backup in catalogue.complete if backup.time is not None and backup.time <= now),
        policy,
    )
    planned = tuple(
        _decide(backup, by_policy.get(backup.name), now, (forced_restore or "").strip(), pinned, incomplete_grace)
        for backup in catalogue.backups
    )
    left = [backup for backup in planned if backup.keep and backup.state is BackupState.COMPLETE]
    if catalogue.complete and not left:
        raise RetentionRefused(
            f"gs://{bucket}/{catalogue.run}: the plan would remove every complete backup "
            f"({', '.join(backup.name for backup in catalogue.complete)}); expected at least one to stay. "
            "Raise keep_last or pin one."
        )
    return RetentionPlan(bucket, catalogue.run, now, policy, planned)


def _decide(
    backup: Backup,
    by_policy: tuple[str, ...] | None,
    now: datetime,
    forced_restore: str,
    pinned: Collection[str],
    incomplete_grace: timedelta,
) -> PlannedBackup:
    protections = list(_protections(backup, now, forced_restore, pinned, incomplete_grace))
    reasons = (*protections, *(by_policy or ()))
    if reasons:
        return PlannedBackup(backup.name, backup.step, backup.state, True, reasons)
    why = "no rule keeps it" if backup.state is BackupState.COMPLETE else _age(backup, now)
    return PlannedBackup(backup.name, backup.step, backup.state, False, (why,))


def _protections(
    backup: Backup, now: datetime, forced_restore: str, pinned: Collection[str], incomplete_grace: timedelta
) -> list[str]:
    found = []
    if backup.name == forced_restore:
        found.append("named by restore.version")
    if backup.name in pinned:
        found.append("pinned")
    if backup.state is BackupState.FOREIGN or backup.time is None:
        found.append("not judged: not a backup of this run")
    elif backup.time > now:
        found.append("not judged: its date lies in the future")
    elif backup.state is BackupState.IN_FLIGHT:
        found.append("still uploading")
    elif backup.state in (BackupState.INCOMPLETE, BackupState.EMPTY) and now - _last_change(backup) < incomplete_grace:
        found.append(f"{backup.state.value}, younger than {incomplete_grace}")
    return found


def _last_change(backup: Backup) -> datetime:
    times = [time for time in (backup.time, backup.newest) if time is not None]
    return max(times)


def _age(backup: Backup, now: datetime) -> str:
    return f"{backup.state.value} for {now - _last_change(backup)}"


def _backup_as_dict(backup: PlannedBackup) -> dict[str, Any]:
    return {
        "name": backup.name,
        "step": backup.step,
        "state": backup.state.value,
        "reasons": list(backup.reasons),
    }
