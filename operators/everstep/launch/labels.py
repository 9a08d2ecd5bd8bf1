"""Labels, annotations and names by which Everstep, JobSet and GKE know a run's objects."""

from __future__ import annotations

import hashlib

RUN = "everstep.dev/run"
OWNER = "everstep.dev/owner"
SPEC_HASH = "everstep.dev/spec-hash"
LAUNCH = "everstep.dev/launch"
ATTEMPT = "everstep.dev/attempt"
HOLDER = "everstep.dev/holder"
SAVE_REQUESTED = "everstep.dev/save-requested"

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
NODE_POOL = "cloud.google.com/gke-nodepool"

TRAINER_CONTAINER = "trainer"
OBSERVER_CONTAINER = "observer"
CHECKPOINT_DRIVER = "multitier-checkpoint.csi.storage.gke.io"


def owner_hash(holder: str) -> str:
    """Return a lease holder's name in the form of a label value."""
    return hashlib.sha256(holder.encode()).hexdigest()[:16]
