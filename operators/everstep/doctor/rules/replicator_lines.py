"""What lines of the replicator mean: patterns, and nothing that decides a verdict. Pure.

The texts are those of the public replicator; the managed one may word them otherwise, so a line that no pattern knows
is shown as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HARMLESS = ""


@dataclass(frozen=True)
class Meaning:
    """What a line means: the symptom that it stands for (HARMLESS for none), why, and what to do."""

    symptom: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str = ""


def _line(symptom: str, pattern: str, cause: str, remedy: str = "") -> Meaning:
    return Meaning(symptom, re.compile(pattern, re.IGNORECASE), cause, remedy)


# The first that matches counts.
MEANINGS = (
    _line(HARMLESS, r"New config .*detected\. Terminating", "written at every ordinary restart of a job"),
    _line(HARMLESS, r"No valid checkpoints found in the cluster, trying backups", "said before a backup is restored"),
    _line(
        "fresh-start",
        r"No valid checkpoints found anywhere|Cannot restore, no checkpoint to restore from",
        "the replicator found nothing to restore",
    ),
    _line(
        "bucket-not-hierarchical",
        r"does NOT support atomic renames|NOT HNS-enabled",
        "the bucket has no hierarchical namespace, so the replicator gives up and no backup is ever made; that can't "
        "be turned on later, a new bucket is needed",
        "gcloud storage buckets create gs://NEW_BUCKET --location=REGION --uniform-bucket-level-access "
        "--enable-hierarchical-namespace   # then name it in the cluster file and recreate the configuration",
    ),
    _line(
        "replicator-config",
        r"KeyError: '?backup-interval-minutes|backup-interval-steps",
        "the job asks for backups by steps (backup-interval-steps), which this replicator does not know",
        "set backup_interval_minutes in the training code instead",
    ),
    _line(
        "step-zero",
        r"KeyError: '?replicated-step",
        "a checkpoint of step 0 was saved; the replicator takes 0 for no checkpoint and fails at the next save",
        "save first at step 1 or later",
    ),
    _line(
        "replicator-config",
        r"Config \S+ is empty",
        "the job wrote replicator.yaml in place instead of renaming it there, and lost it",
        "write replicator.yaml.tmp, then rename it to replicator.yaml (everstep_trainer does)",
    ),
    _line(
        "replicator-config",
        r"Config .* can't be used|Unknown framework|Key '\S+' is missing|ScannerError|ParserError|"
        r"KeyError: '?(job-name|framework|node-rank|nodes|peers-per-node|peer-ranks)",
        "what the job wrote into replicator.yaml can't be used",
        "correct the keys (docs/reference/files.md), or let everstep_trainer.join() write the file",
    ),
    _line(
        "replicator-config",
        r"NodeRanks are not 0\.\.|is not divisible by",
        "the number of nodes, their ranks and the data parallelism that the job gives don't fit each other",
        "set slices.count and checkpoints.data_parallelism in the run file so that the nodes divide by it",
    ),
    _line(
        "no-progress",
        r"training is not making progress|has the same hash",
        "two saves in a row are equal to the byte: the training does not change its weights",
        "look at learning rate, loss scaling and NaN in the training log; go back by: everstep resume RUN "
        "--before-step STEP",
    ),
    _line(
        "backup-overlap",
        r"is still running, skipping backup|Backup should be requested .* skipping",
        "a backup was left out because the one before was still on its way: uploads take longer than the interval",
        "raise checkpoints.backup.every_minutes in the run file, or look for a slow node",
    ),
    _line(
        "backup-failed",
        r"Failed: backup for step|Failed to copy",
        "a node could not upload its part of a backup, so that backup is incomplete; training goes on",
        "look at the bucket's rights and quotas; the next backup is due after the interval",
    ),
    _line(
        "driver-denied",
        r"PermissionDenied|storage\.\w+\.\w+ access|HTTP 403|Error 403",
        "the driver may not use the bucket",
    ),
    _line(
        "replicator-failed",
        r"Coordinator failed|StaleCoordinator|unexpected coordinator|KeyError: '?error",
        "the coordinator of the job's replicators failed, or a node reached one of an earlier attempt",
        "restart the run's attempt: kubectl delete jobs -l jobset.sigs.k8s.io/jobset-name=RUN",
    ),
    _line(
        "ram-disk-full",
        r"No space left on device|ENOSPC",
        "the node's RAM disk is full: it is smaller than the copies that it has to hold",
        "raise in_memory_volume_size (2.2 x one node's checkpoint on TPU, 6.6 x on GPU), then recreate the "
        "configuration",
    ),
)
_LEVEL = re.compile(r"\[(CRT|CRI|ERR|CRITICAL|ERROR)\]")
_PREFIX = re.compile(r"^\S+ \S+ \S+ job=\S* node=\S* \[\w+\] \S+: ")


def meaning_of(line: str) -> Meaning | None:
    """Return what a line means; None when no pattern knows it."""
    return next((meaning for meaning in MEANINGS if meaning.pattern.search(line)), None)


def alarming(text: str) -> list[str]:
    """Return the lines at level ERROR and above of a replicator's log, and all of a text without levels."""
    lines = [line for line in text.splitlines() if line.strip()]
    levelled = [line for line in lines if _LEVEL.search(line)]
    return levelled if levelled or any(_PREFIX.match(line) for line in lines) else lines


def bare(line: str) -> str:
    """Return a line without time, process, job and place, so that the same words of two nodes are equal."""
    return _PREFIX.sub("", line.strip())
