"""Which JobSets get ranks, and their shape."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.checkpointing.rank_server import JobShape

CSI_DRIVER = "multitier-checkpoint.csi.storage.gke.io"


def job_shape(jobset: dict[str, Any]) -> JobShape | None:
    """None unless the set has exactly one replicated job in all and its pods carry the checkpoint volume."""
    replicated = jobset["spec"].get("replicatedJobs") or []
    if len(replicated) != 1:
        return None
    job = replicated[0]["template"]["spec"]
    volumes = job["template"]["spec"].get("volumes") or []
    if not any((volume.get("csi") or {}).get("driver") == CSI_DRIVER for volume in volumes):
        return None
    return JobShape(jobset["metadata"]["uid"], int(replicated[0].get("replicas", 1)), int(job.get("parallelism", 1)))
