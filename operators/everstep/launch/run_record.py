"""run.json: what launch tells the trainer and everybody else about a run.

The number of launches and the lineage live here, so they outlast JobSets, DAG runs and Airflows.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients.storage import BucketClient
from everstep.launch import manifest
from everstep.launch.lease import timestamp
from everstep.spec.findings import FindingsError, error
from everstep.spec.training import TrainingSpec


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json. `bound_step` is the highest step that the lineage may restore; None: no bound."""

    run: str
    lineage: str
    launch: int
    slices: int
    nodes: int
    nodes_per_slice: int
    workers_per_node: int
    data_parallelism: int
    framework: str
    final_step: int | None
    allow_fresh_start: bool
    bound_step: int | None
    quarantined: tuple[str, ...]
    spec_hash: str
    written: str
    version: int = 1

    def document(self) -> dict[str, Any]:
        """Return the record as it is written."""
        return {**asdict(self), "quarantined": list(self.quarantined)}


def next_launch(bucket: BucketClient, spec: TrainingSpec) -> RunRecord:
    """Write the record of the run's next launch, on top of the one that there is, and return it.

    Only the holder of the run's lease may call this. Raises Conflict when the record changes meanwhile.
    """
    folder = RunFolder(bucket.name, spec.name)
    stored = bucket.read(folder.run_record)
    before: dict[str, Any] = {}
    if stored is not None:
        before = _parse(stored.body, folder)
    record = RunRecord(
        run=spec.name,
        lineage=before.get("lineage") or uuid.uuid4().hex[:12],
        launch=int(before.get("launch", 0)) + 1,
        slices=spec.slices.count,
        nodes=spec.nodes,
        nodes_per_slice=spec.pool.nodes_per_slice,
        workers_per_node=1,
        data_parallelism=spec.data_parallelism,
        framework=spec.checkpoints.framework,
        final_step=spec.final_step,
        allow_fresh_start=spec.allow_fresh_start,
        bound_step=before.get("bound_step"),
        quarantined=tuple(before.get("quarantined") or ()),
        spec_hash=manifest.fingerprint(spec),
        written=timestamp(datetime.now(UTC)),
    )
    bucket.write(folder.run_record, record.document(), generation=stored.generation if stored else 0)
    return record


def _parse(body: bytes, folder: RunFolder) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("launch", 0), int):
        raise FindingsError(
            f"the record of run {folder.run!r} can't be read",
            [
                error(
                    folder.url(folder.run_record),
                    "no JSON object with a launch number",
                    "run.json as Everstep writes it",
                    "restore the object from an older generation; it holds the run's lineage",
                )
            ],
        )
    return document
