"""What only shows when a run file and its cluster file are read together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from everstep.spec.findings import Finding, error, warning
from everstep.spec.names import check_run_name
from everstep.spec.quantities import format_bytes, times

if TYPE_CHECKING:
    from everstep.spec.cluster import ClusterSpec
    from everstep.spec.pools import PoolSpec
    from everstep.spec.training import TrainingSpec

# Google's documentation asks for at least half an hour: more frequent backups wear on bucket and network.
SHORTEST_USUAL_BACKUP_MINUTES = 30


def check_together(spec: TrainingSpec, cluster: ClusterSpec) -> list[Finding]:
    """Return everything that is wrong or doubtful about a run on a cluster."""
    findings = []
    if spec.cluster != cluster.name:
        findings.append(
            error("cluster", f"{cluster.name!r} in the cluster file", f"{spec.cluster!r}, as the run file says")
        )
    findings += _priority(spec, cluster)
    findings += _backups(spec)
    pool = cluster.pools.get(spec.slices.pool)
    if pool is None:
        findings.append(_unknown("slices.pool", spec.slices.pool, cluster.pools))
        return findings
    findings += check_run_name(spec.name, spec.slices.count, pool.nodes_per_slice)
    findings += _slices(spec, pool)
    findings += _data_parallelism(spec, pool)
    findings += _ram(spec, cluster, pool)
    return findings


def _priority(spec: TrainingSpec, cluster: ClusterSpec) -> list[Finding]:
    if spec.priority is None:
        if spec.slices.spare != "preempt":
            return []
        return [
            error(
                "priority",
                "nothing, with slices.spare: preempt",
                f"one of {', '.join(cluster.priorities) or '(the cluster file has no priorities)'}",
                "name a priority, since pods of default priority preempt nobody",
            )
        ]
    if spec.priority not in cluster.priorities:
        return [_unknown("priority", spec.priority, cluster.priorities)]
    own = cluster.priorities[spec.priority]
    if spec.slices.spare == "preempt" and own <= min(cluster.priorities.values()):
        return [
            error(
                "priority",
                f"{spec.priority!r} = {own}, the lowest of the cluster file, with slices.spare: preempt",
                "a higher one than the run that gives up its slice",
            )
        ]
    return []


def _backups(spec: TrainingSpec) -> list[Finding]:
    minutes = spec.checkpoints.backup.every_minutes
    key = "checkpoints.backup.every_minutes"
    if minutes < 1:
        return [
            warning(key, f"{minutes:g}", "1 or more", "two backups of one minute share a directory: fit for tests only")
        ]
    if minutes < SHORTEST_USUAL_BACKUP_MINUTES:
        return [warning(key, f"{minutes:g}", f"{SHORTEST_USUAL_BACKUP_MINUTES} or more, as Google recommends")]
    return []


def _slices(spec: TrainingSpec, pool: PoolSpec) -> list[Finding]:
    needed = spec.slices.count + (1 if spec.slices.spare == "idle" else 0)
    if needed > pool.slices:
        spare = " and an idle spare" if spec.slices.spare == "idle" else ""
        return [
            error(
                "slices.count",
                f"{spec.slices.count}{spare}",
                f"at most {pool.slices} in pool {spec.slices.pool!r}",
                "ask for fewer slices, or enlarge the pool in the cluster file",
            )
        ]
    if spec.slices.spare == "preempt" and spec.slices.count == pool.slices:
        return [
            warning(
                "slices.spare",
                f"preempt, while the run takes all {pool.slices} slices of the pool",
                "a slice that somebody else runs on",
                "a lost slice comes back only when it is repaired",
            )
        ]
    return []


def _data_parallelism(spec: TrainingSpec, pool: PoolSpec) -> list[Finding]:
    nodes = spec.slices.count * pool.nodes_per_slice
    groups = spec.checkpoints.data_parallelism or spec.slices.count
    if nodes % groups == 0:
        return []
    divisors = [str(count) for count in range(1, nodes + 1) if nodes % count == 0]
    return [
        error(
            "checkpoints.data_parallelism",
            f"{groups} with {nodes} nodes",
            f"a divisor of the number of nodes: {', '.join(divisors)}",
            "the replicator would back up some nodes' data only, and say so in its log only",
        )
    ]


def _ram(spec: TrainingSpec, cluster: ClusterSpec, pool: PoolSpec) -> list[Finding]:
    found = cluster.configuration_of(pool.machine_type)
    if found is None:
        covered = ", ".join(sorted({each.machine_type for each in cluster.checkpoint_configurations.values()}))
        return [
            error(
                "checkpoint_configurations",
                f"none for machine type {pool.machine_type!r} of pool {spec.slices.pool!r}",
                f"one that covers it (covered: {covered})",
                "add a checkpoint configuration for it to the cluster file",
            )
        ]
    name, configuration = found
    per_node = spec.on_pool_bytes_per_node(pool)
    if per_node is None:
        return []
    needed = times(per_node, pool.ram_factor)
    if needed <= configuration.ram_bytes:
        return []
    return [
        error(
            "checkpoints.size" if spec.checkpoints.size is not None else "checkpoints.parameters",
            f"{format_bytes(per_node)} per node",
            f"at most {format_bytes(configuration.ram_bytes / pool.ram_factor)}, since the RAM disk of "
            f"{configuration.in_memory_volume_size} (checkpoint configuration {name!r}) has to hold "
            f"{pool.ram_factor:g} times one node's checkpoint",
            f"set in_memory_volume_size to {format_bytes(needed)} or more, or save less per node",
        )
    ]


def _unknown(key: str, value: str, known: Iterable[str]) -> Finding:
    known = list(known)
    nearest = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    return error(
        key,
        repr(value),
        f"one of {', '.join(known)}" if known else "a name that the cluster file has; it has none",
        f"did you mean {nearest[0]!r}?" if nearest else "add it to the cluster file",
    )
