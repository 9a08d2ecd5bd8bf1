"""What a bucket's own settings mean for retention: soft delete, lifecycle rules, retention policies and holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everstep.retain.words import duration


@dataclass(frozen=True)
class BucketRules:
    """`soft_delete`: for how long what was deleted stays, and is billed. `warnings` say what gets in the way."""

    hierarchical: bool
    soft_delete: timedelta = timedelta(0)
    warnings: tuple[str, ...] = ()


def read(metadata: Mapping[str, Any], run: str) -> BucketRules:
    """Read a bucket's description, as the JSON API spells it, for one run."""
    bucket = f"gs://{metadata.get('name', '?')}"
    warnings = []
    for rule in (metadata.get("lifecycle") or {}).get("rule") or ():
        if (rule.get("action") or {}).get("type") == "Delete" and _may_hit(rule.get("condition") or {}, f"{run}/"):
            warnings.append(
                f"{bucket}: a lifecycle rule deletes objects of {run} one by one ({_shown(rule)}); a backup "
                "that has lost some of its data still counts as complete for the replicator. Take the rule away, or "
                "limit it by matchesPrefix."
            )
    retention = int((metadata.get("retentionPolicy") or {}).get("retentionPeriod", 0))
    if retention:
        warnings.append(
            f"{bucket}: its retention policy refuses deletes for {duration(timedelta(seconds=retention))} after an "
            "object was made; what is younger can't be swept."
        )
    if metadata.get("defaultEventBasedHold"):
        warnings.append(f"{bucket}: new objects are under an event-based hold; they can't be deleted until released.")
    if (metadata.get("versioning") or {}).get("enabled"):
        warnings.append(f"{bucket}: object versioning keeps what is deleted; sweeping frees nothing by itself.")
    seconds = int((metadata.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0))
    hierarchical = bool((metadata.get("hierarchicalNamespace") or {}).get("enabled"))
    return BucketRules(hierarchical, timedelta(seconds=seconds), tuple(warnings))


def _may_hit(condition: Mapping[str, Any], run_prefix: str) -> bool:
    """A rule with a suffix may hit too: `.data` is one that people choose."""
    if condition.get("isLive") is False or condition.get("numNewerVersions"):
        return False
    prefixes = condition.get("matchesPrefix") or [""]
    return any(prefix.startswith(run_prefix) or run_prefix.startswith(prefix) for prefix in prefixes)


def _shown(rule: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted((rule.get("condition") or {}).items())) or "always"
