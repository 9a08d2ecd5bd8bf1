"""What a run file's ``retention`` says, as policy and settings."""

from __future__ import annotations

from datetime import timedelta

from everstep.retain.policy import PERIODS, Best, Policy
from everstep.retain.protections import Settings
from everstep.spec.training import RetentionSpec


def policy(spec: RetentionSpec) -> Policy:
    """Return which checkpoints it keeps."""
    counts = spec.model_dump()
    return Policy(
        {period: counts[period] for period in PERIODS},
        keep_last=spec.keep_last,
        prefer_recent=spec.prefer_recent,
        relaxed=spec.relaxed,
        every_steps=spec.every_steps,
        within=timedelta(hours=spec.within_hours) if spec.within_hours else None,
        best=Best(spec.best.metric, spec.best.count, spec.best.mode) if spec.best else None,
        pins=spec.pins,
    )


def settings(spec: RetentionSpec) -> Settings:
    """Return how careful a plan is."""
    return Settings(
        keep_complete=spec.keep_complete,
        young=timedelta(hours=spec.young_hours),
        incomplete=timedelta(hours=spec.incomplete_hours),
        leftovers=timedelta(hours=spec.trash_hours),
        max_share=spec.max_share,
    )
