"""What a run's folder in the bucket tells a diagnosis: its backups and records, and the last attempts' reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everstep.checkpoints import names
from everstep.checkpoints.catalogue import Backup, Shape
from everstep.checkpoints.layout import HIERARCHY_TEST, RunFolder
from everstep.clients import run_folder
from everstep.clients.requests import ListRequest, ReadRequest, Steps, listing, stored
from everstep.doctor.evidence import Object, Target

if TYPE_CHECKING:
    from everstep.clients.storage import BucketClient

ATTEMPTS = 4
REPORTS_OF_EACH = 32
BACKUPS = 20


def read_folder(bucket: BucketClient, target: Target) -> tuple[list[Object], list[Object]]:
    """Return one object that describes a run's folder, and the reports of its last attempts. Raises RemoteError."""
    folder = RunFolder(target.bucket, target.run)
    records = bucket.run(run_folder.records(folder))
    shape = _shape(target, records.get("run.json") or {})
    contents = bucket.run(run_folder.contents(folder, shape, everything=False))
    good = contents.last_known_good
    complete = contents.catalogue.complete
    described: Object = {
        "url": folder.url(),
        "shape": vars(shape) if hasattr(shape, "__dict__") else asdict(shape),
        "backups": [_backup(each) for each in reversed(contents.catalogue.backups[:BACKUPS])],
        "older_backups": len(contents.unjudged),
        "newest_complete_at": _text(_time(complete[0])) if complete else None,
        "last_known_good": None if good is None else asdict(good),
        "last_known_good_at": _text(names.parse_backup_directory(good.name)) if good is not None else None,
        "durable_steps": list(contents.durable_steps),
        "incomplete_durable_steps": list(contents.incomplete_durable_steps),
        "forced": contents.forced,
        "hierarchy_test_since": _text(bucket.run(_sentinel(folder))) if contents.hierarchy_test_left else None,
        "run_record": contents.run_record,
        "status": contents.status,
        "lease": contents.lease,
    }
    return [described], bucket.run(_recent_reports(folder))


def _shape(target: Target, record: Mapping[str, Any]) -> Shape:
    """Return the shape by which backups are judged: that of the last launch, else the one that is wanted."""
    nodes = int(record.get("nodes") or target.nodes or 1)
    parallelism = int(record.get("data_parallelism") or target.data_parallelism or 1)
    return Shape(nodes, int(record.get("workers_per_node") or 1), parallelism if nodes % parallelism == 0 else 1)


def _backup(backup: Backup) -> Object:
    return {
        "name": backup.name,
        "state": str(backup.state.value),
        "step": backup.step,
        "newest": _text(backup.newest),
        "reasons": list(backup.reasons)[:5],
    }


def _time(backup: Backup) -> datetime | None:
    return backup.newest or backup.time


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _sentinel(folder: RunFolder) -> Steps[datetime | None]:
    """Return when the replicator's test of renames left its file behind."""
    level = listing((yield [ListRequest(f"{folder.prefix}{HIERARCHY_TEST}/")])[0])
    return min((each.created for each in level.objects if each.created is not None), default=None)


def _recent_reports(folder: RunFolder) -> Steps[list[Object]]:
    """Return reports of the last attempts, of the first nodes of each."""
    level = listing((yield [ListRequest(folder.attempts_prefix)])[0])
    reports: list[Object] = []
    for attempt in sorted(level.folders)[-ATTEMPTS:]:
        prefix = f"{folder.attempts_prefix}{attempt}/"
        present = listing((yield [ListRequest(prefix)])[0]).objects
        wanted = [prefix + each.name for each in present if each.name.endswith(".json")][:REPORTS_OF_EACH]
        if not wanted:
            continue
        for answer in (yield [ReadRequest(name) for name in wanted]):
            found = stored(answer)
            if found is not None and (report := _document(found.body)) is not None:
                reports.append(report)
    return reports


def _document(body: bytes) -> Object | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
