"""Reports for a workload that speaks to the replicator by itself: ``python -m everstep_trainer.observer``.

Runs beside the training container as a native sidecar on the same checkpoint volume, reads the replicator's files and
writes the reports that the library would write. It never writes or deletes anything on the volume, refuses nothing and
knows neither losses nor how the training container ended. It ends on SIGTERM at once.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from everstep.checkpoints import names
from everstep_trainer import checkpoint_directory, restore_point, signals
from everstep_trainer.bucket import Bucket
from everstep_trainer.checkpoint_directory import FAILED, INIT_INFO, PRERESTORE
from everstep_trainer.errors import ConfigurationError
from everstep_trainer.exit_codes import ExitCode
from everstep_trainer.reports import Reports
from everstep_trainer.run_record import RunRecord
from everstep_trainer.settings import Settings
from everstep_trainer.waiting import Deadline, wait_for

logger = logging.getLogger(__name__)

_FOREVER = 10 * 365 * 24 * 3600.0


@dataclass(frozen=True)
class Observed:
    """What the files of a node say. ``restored``: (step, tier, backup), with step None for a fresh start."""

    rank: int | None = None
    restored: tuple[int | None, str, str | None] | None = None
    newest_save: int | None = None
    replicator_failed: str | None = None


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s everstep observer: %(message)s")
    try:
        settings = Settings.from_environment(os.environ)
    except ConfigurationError as error:
        logger.error("%s", error)
        return ExitCode.CONFIGURATION_ERROR
    signals.on_sigterm(lambda: os._exit(0))
    observe(settings, Bucket(settings.folder.bucket))
    return 0


def observe(settings: Settings, bucket: Bucket) -> None:
    """Watch the directory and report every change, without end."""
    directory = settings.directory
    data_before = checkpoint_directory.data_names(directory)
    reports = Reports(bucket, settings)
    reports.update(lineage=_lineage(bucket, settings))
    reports.start()
    known = Observed()
    while True:

        def changed(known: Observed = known) -> Observed | None:
            found = look(directory, settings.run, data_before)
            return None if found == known else found

        found = wait_for(directory, changed, Deadline(_FOREVER))
        if found is None:
            return
        _report(reports, known, found)
        known = found


def look(directory: Path, job: str, data_before: frozenset[str]) -> Observed:
    """Read the node's files as they are now."""
    rank = _rank(directory)
    if rank is None:
        return Observed()
    entries = [entry.name for entry in checkpoint_directory.entries(directory)]
    saves = [
        parsed.step
        for name in entries
        if (parsed := names.parse_meta(name) or names.parse_save(name)) and (parsed.job, parsed.node) == (job, rank)
    ]
    failed = checkpoint_directory.read_text(directory / FAILED)
    return Observed(
        rank=rank,
        restored=_restored(directory, job, rank, data_before),
        newest_save=max(saves, default=None),
        replicator_failed=failed.strip() if failed else None,
    )


def _rank(directory: Path) -> int | None:
    first = (checkpoint_directory.read_text(directory / INIT_INFO) or "").partition("\n")[0].strip()
    return int(first) if first.isdigit() else None


def _restored(
    directory: Path, job: str, rank: int, data_before: frozenset[str]
) -> tuple[int | None, str, str | None] | None:
    """What this attempt restored; None as long as its data is not there.

    The marker itself may be renamed or removed by the workload within milliseconds, so the replicator's word and the
    data that the meta names are looked at instead. Both files of an earlier attempt are older than the rank file, which
    is written at each mount.
    """
    word = checkpoint_directory.identity(directory / PRERESTORE)
    mounted = checkpoint_directory.identity(directory / INIT_INFO)
    if word is None or mounted is None or word.modified < mounted.modified:
        return None
    step = restore_point.promised_step(directory)
    if step is None:
        return None, "fresh", None
    digest = (checkpoint_directory.read_text(directory / names.meta_name(job, step, rank)) or "").strip()
    data = names.data_name(digest)
    if not digest or not (directory / data).exists():
        return None
    backup = restore_point.restored_backup(directory)
    if backup is not None:
        return step, "backup", backup
    return step, "local" if data in data_before else "peer", None


def _report(reports: Reports, known: Observed, found: Observed) -> None:
    if found.rank is None:
        return
    reports.update(rank=found.rank, replicator_failed=found.replicator_failed)
    if found.restored is None:
        reports.update(urgent=known.rank is None, phase="restoring")
        return
    step, tier, backup = found.restored
    newest = max(found.newest_save or 0, step or 0)
    reports.update(
        urgent=known.restored is None,
        phase="training",
        restored_step=step,
        restored_tier=tier,
        restored_backup=backup,
        step=newest or None,
        last_local_save=newest or None,
    )


def _lineage(bucket: Bucket, settings: Settings) -> str:
    try:
        stored = bucket.read(settings.folder.run_record)
        return "" if stored is None else RunRecord.parse(stored.content, settings.folder.run_record).lineage
    except Exception as error:
        logger.warning("run.json was not read, so reports carry no lineage: %s", error)
        return ""


if __name__ == "__main__":
    sys.exit(main())
