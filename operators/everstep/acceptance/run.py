"""One acceptance test of a cluster: finds its ground, judges every item, and leaves nothing behind."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

from everstep.acceptance import bucket_items, cluster_items, training_items
from everstep.acceptance.items import Record
from everstep.acceptance.probe_jobset import Ground
from everstep.acceptance.training_items import Trial
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import CHECKPOINT_CONFIGURATIONS, NODES
from everstep.clients.storage import BucketClient
from everstep.launch.labels import NODE_POOL
from everstep.spec.findings import FindingsError, error

Object = dict[str, Any]
LOWEST_SLICES = 2


def judge(
    cluster: KubernetesClient,
    open_bucket: Callable[[str], BucketClient],
    configuration: str,
    *,
    namespace: str,
    image: str,
    backup_minutes: float,
    save_seconds: float,
    patience: float,
    tell: Callable[[str], None],
) -> Record:
    """Judge a cluster on the nodes of one of its CheckpointConfigurations. Raises FindingsError without ground for it.

    The nodes must be free: the probe holds all of them for some minutes, at the default priority.
    """
    found = cluster.find(CHECKPOINT_CONFIGURATIONS, configuration)
    if found is None:
        known = [one["metadata"]["name"] for one in cluster.list_all(CHECKPOINT_CONFIGURATIONS)]
        raise FindingsError(
            "there is no ground for an acceptance test",
            [
                error(
                    f"CheckpointConfiguration {configuration}",
                    "not there",
                    f"one of {', '.join(known)}" if known else "one that `everstep provision` makes",
                )
            ],
        )
    ground = ground_of(cluster, found, namespace, image)
    bucket = open_bucket(found["spec"]["cloudStorageBucketName"])
    run = f"everstep-acceptance-{secrets.token_hex(3)}"
    tell(
        f"{ground.slices} node pools of {ground.nodes_per_slice} nodes, gs://{bucket.name}/{run}/; the longest waits "
        f"take {patience:.0f} s"
    )
    record = Record(tell)
    cluster_items.judge(record, cluster, found)
    with bucket_items.scratch(bucket.library_client, bucket.name, f"{run}/tried/") as folder:
        bucket_items.judge(record, folder)
    trial = Trial(ground, run, backup_minutes, save_seconds, patience)
    with (
        bucket_items.scratch(bucket.library_client, bucket.name, f"{run}/"),
        bucket_items.scratch(bucket.library_client, bucket.name, f"{trial.other_run}/"),
    ):
        training_items.judge(record, cluster, bucket, trial)
    return record


def ground_of(cluster: KubernetesClient, configuration: Object, namespace: str, image: str) -> Ground:
    """Return the nodes that a configuration covers, as equal groups by node pool.

    Raises FindingsError when there are fewer than two groups: a peer in another slice is what much depends on.
    """
    selector = configuration["spec"].get("nodeSelector") or {}
    nodes = cluster.list_all(NODES, labels=",".join(f"{key}={value}" for key, value in sorted(selector.items())))
    pools = Counter(node["metadata"]["labels"].get(NODE_POOL, "") for node in nodes)
    if len(pools) < LOWEST_SLICES:
        raise FindingsError(
            "there is no ground for an acceptance test",
            [
                error(
                    f"nodes of CheckpointConfiguration {configuration['metadata']['name']}",
                    f"{len(nodes)} in {len(pools)} node pools",
                    f"{LOWEST_SLICES} node pools or more; e2-standard-2 nodes do",
                    "make two small node pools with a label and taint of their own, and a configuration for them",
                )
            ],
        )
    tolerations = tuple(configuration["spec"].get("tolerations") or ())
    return Ground(namespace, selector, tolerations, len(pools), min(pools.values()), image)


def backup_minutes_of(text: str) -> float:
    """Return minutes between backups; raises ValueError for what is not a number above 0."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) <= 0:
        raise ValueError(f"{text!r}: expected minutes above 0, such as 1")
    return float(text)
