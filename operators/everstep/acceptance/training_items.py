"""What Everstep relies on of JobSet and of the replicator, seen while a probe trains, fails, resumes and gives way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.acceptance.items import NotJudged, Record
from everstep.acceptance.probe_jobset import Ground, probe_jobset
from everstep.acceptance.watching import ProbeView
from everstep.checkpoints.catalogue import Backup, Catalogue, Shape
from everstep.checkpoints.layout import RunFolder
from everstep.checkpoints.names import digest_of_data, parse_backup_directory, parse_restore
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS, NODES, PRIORITY_CLASSES
from everstep.clients.run_folder import contents
from everstep.clients.storage import BucketClient
from everstep.launch import labels

Object = dict[str, Any]
LOW, HIGH = "everstep-acceptance-low", "everstep-acceptance-high"
# More than half of a node, so that two pods never share one, and preemption has to make room.
SHARE_OF_NODE = 0.55


@dataclass(frozen=True)
class Trial:
    """How a probe's run is tried.

    :param run: its name, and its folder in the bucket
    :param backup_minutes: asked of the replicator
    :param save_seconds: between two saves
    :param patience: seconds that anything may take
    """

    ground: Ground
    run: str
    backup_minutes: float
    save_seconds: float
    patience: float

    @property
    def other_run(self) -> str:
        """Return the name of another run, for what only two can show."""
        return f"{self.run}-other"

    def jobset(self, **options: Any) -> Object:
        """Return the probe's JobSet."""
        return probe_jobset(
            self.ground,
            self.run,
            self.run,
            backup_minutes=self.backup_minutes,
            save_seconds=self.save_seconds,
            patience_seconds=self.patience,
            **options,
        )


def judge(record: Record, cluster: KubernetesClient, bucket: BucketClient, trial: Trial) -> None:
    """Judge every item that needs a workload."""
    view = ProbeView(cluster, trial.ground.namespace, trial.run, trial.patience)
    backup: Backup | None = None
    with _launched(view, trial.jobset()):
        backup = _first_attempt(record, view, bucket, trial)
        _restart(record, view, trial)
        _suspend(record, view, trial)
    if backup is None:
        record.unknown("restore.forced", "restore.version decides what is restored", "no backup was seen before")
    else:
        _forced_restore(record, view, bucket, trial, backup.name)
        _other_job(record, view, trial)
    _hot_swap(record, cluster, trial)


@contextmanager
def _launched(view: ProbeView, jobset: Object) -> Iterator[None]:
    view.cluster.create(JOBSETS, jobset, view.namespace)
    try:
        yield
    finally:
        view.delete()


def _first_attempt(record: Record, view: ProbeView, bucket: BucketClient, trial: Trial) -> Backup | None:
    count = trial.ground.nodes
    with record.item("placement.exclusive", "each Job of a JobSet has a node pool of its own") as seen:
        pods = view.wait_for("all pods on nodes", lambda: _placed(view.pods(0), count))
        pools = _pools(view, pods)
        alone = len(pools) == trial.ground.slices and all(len(jobs) == 1 for jobs in pools.values())
        seen.expect(alone, {pool: sorted(jobs) for pool, jobs in pools.items()})
    with record.item("pods.labels", "pods carry attempt and index of their Job, and their own index") as seen:
        pod = view.pods(0)[0]["metadata"]
        found = {key: pod["labels"].get(key) for key in (labels.RESTART_ATTEMPT, labels.JOB_INDEX, labels.JOBSET_NAME)}
        found[labels.COMPLETION_INDEX] = pod["annotations"].get(labels.COMPLETION_INDEX)
        seen.expect(all(found.values()), found)
    with record.item("ranks.file", "every node gets its own rank and one coordinator in jax-init-info.txt") as seen:
        told = view.wait_for("all ranks", lambda: view.items(0, "rank-file", count))
        coordinators = {line["text"].split("\n")[1] for line in told}
        ranks = sorted(line["rank"] for line in told)
        seen.expect(ranks == list(range(count)) and len(coordinators) == 1, f"ranks {ranks}, {coordinators}")
    with record.item("handshake.taken", "the replicator takes replicator.yaml away") as seen:
        told = view.wait_for("replicator.yaml taken", lambda: view.items(0, "config-taken", count))
        seen.saw(f"after {max(line['seconds'] for line in told):.1f} s at most")
    with record.item("restore.none", "with nothing to restore the marker is an empty file of step 0") as seen:
        told = view.wait_for("all markers", lambda: view.items(0, "restored", count))
        shape = {(_step(line), line["link"], line["size"]) for line in told}
        said = {line["prerestore"] for line in told}
        seen.expect(shape == {(0, None, 0)} and said == {"{}"}, f"{shape}, replicator.prerestore {said}")
    with record.item("save.renamed", "a saved directory becomes <hash>.data, and its .meta holds the hash") as seen:
        told = view.wait_for("the first saves", lambda: view.items(0, "saved", count))
        good = all(line["data"] and line["renamed"] and digest_of_data(f"{line['digest']}.data") for line in told)
        seen.expect(good, f"{told[0]['digest'][:9]}…, after {max(line['seconds'] for line in told):.2f} s at most")
    return _backup(record, view, bucket, trial)


def _backup(record: Record, view: ProbeView, bucket: BucketClient, trial: Trial) -> Backup | None:
    complete: Backup | None = None
    with record.item("backup.complete", "backups appear as dated folders, complete by metas and data names") as seen:
        complete = view.wait_for("a complete backup", lambda: _newest(bucket, trial))
        seen.saw(f"{complete.name} of step {complete.step}")
    if complete is None:
        return None
    with record.item("backup.clock", "a backup is called after the UTC minute of its request") as seen:
        named = parse_backup_directory(complete.name)
        assert named is not None
        away = abs(datetime.now(UTC) - named)
        seen.expect(away < timedelta(seconds=2 * trial.patience + 120), f"{away.total_seconds():.0f} s ago")
    return complete


def _restart(record: Record, view: ProbeView, trial: Trial) -> None:
    count = trial.ground.nodes
    before = {line["node"]: line["rank"] for line in _by_node(view, 0)}
    with record.item("pods.annotations", "an annotation of a pod reaches its container by the downward API") as seen:
        view.end("fail")
        began = time.monotonic()
        view.wait_for("the restart that it asks for", lambda: _restarted(view.jobset(), 1))
        seen.saw(f"the JobSet restarted {time.monotonic() - began:.0f} s later")
    with record.item("restart.uncounted", "a rule restarts the JobSet without counting it") as seen:
        status = view.wait_for("a restart", lambda: _restarted(view.jobset(), 1))
        counted = status.get("restartsCountTowardsMax") or 0
        seen.expect(counted == 0, f"restarts {status['restarts']}, of which {counted} count")
    with record.item("restore.in-cluster", "after a restart the newest step that all nodes hold is restored") as seen:
        told = view.wait_for("all markers", lambda: view.items(1, "restored", count))
        found = {_step(line) for line in told}
        whole = all(line["link"] and str(line["content"]).startswith(f"step {max(found)} of node") for line in told)
        near = {"restore-backup" not in line["prerestore"] for line in told}
        seen.expect(len(found) == 1 and max(found) > 0 and whole and near == {True}, f"step {found}, from RAM {near}")
    with record.item("ranks.kept", "nodes keep their rank over a restart") as seen:
        after = {line["node"]: line["rank"] for line in _by_node(view, 1)}
        same = [node for node in after if before.get(node) == after[node]]
        seen.expect(bool(after) and len(same) == len(after), f"{len(same)} of {len(after)}")


def _suspend(record: Record, view: ProbeView, trial: Trial) -> None:
    with record.item("suspend.pods", "suspending a JobSet deletes its pods and says so in a condition") as seen:
        view.cluster.patch(JOBSETS, view.name, {"spec": {"suspend": True}}, view.namespace)
        found = view.wait_for("the condition Suspended", lambda: view.condition("Suspended"))
        view.wait_for("no pods", lambda: None if view.pods() else True)
        seen.saw(found.get("reason"))
    with record.item("suspend.resume", "a resumed JobSet has its pods again, and restores") as seen:
        view.cluster.patch(JOBSETS, view.name, {"spec": {"suspend": False}}, view.namespace)
        attempt = int((view.jobset().get("status") or {}).get("restarts") or 0)
        told = view.wait_for("all markers", lambda: view.items(attempt, "restored", trial.ground.nodes))
        found_steps = {_step(line) for line in told}
        seen.expect(min(found_steps) > 0, f"step {found_steps}, {told[0]['prerestore']}")
    with record.item("jobset.completed", "a JobSet whose pods all end with 0 is Completed") as seen:
        view.wait_for("saves", lambda: view.items(attempt, "saved", trial.ground.nodes))
        view.end("done")
        found = view.wait_for("the condition Completed", lambda: view.condition("Completed"))
        seen.saw(found.get("reason"))


def _forced_restore(record: Record, view: ProbeView, bucket: BucketClient, trial: Trial, backup: str) -> None:
    folder = RunFolder(bucket.name, trial.run)
    with record.item("restore.forced", "restore.version decides what is restored, over newer steps in RAM") as seen:
        # Looked at only now: a backup that falls into the same minute adds its step to the same folder.
        named = _catalogue(bucket, trial).named(backup)
        wanted = named.step if named is not None else None
        bucket.write_text(folder.restore_version, backup, generation=0)
        with _launched(view, trial.jobset()):
            steps = _restored_steps(view, trial)
            with record.item("restore.consumed", "restore.version goes away after a fresher save") as consumed:
                view.wait_for(
                    "restore.version gone", lambda: True if bucket.read(folder.restore_version) is None else None
                )
                consumed.saw("it is gone")
            _end_well(view)
        seen.expect(steps == {wanted}, f"step {steps}; backup {backup} holds step {wanted}")


def _other_job(record: Record, view: ProbeView, trial: Trial) -> None:
    other = replace(trial, run=trial.other_run)
    claim = "a job of another name clears the RAM disks, so that the next attempt comes from the bucket"
    with record.item("ram.other-job", claim) as seen:
        beside = ProbeView(view.cluster, view.namespace, other.run, view.patience)
        with _launched(beside, other.jobset()):
            _restored_steps(beside, other)
            _end_well(beside)
        with _launched(view, trial.jobset()):
            told = view.wait_for("all markers", lambda: view.items(0, "restored", trial.ground.nodes))
            _end_well(view)
        said = {line["prerestore"] for line in told}
        seen.expect(all("restore-backup" in one for one in said), "; ".join(said).replace("\n", ", "))


def _restored_steps(view: ProbeView, trial: Trial) -> set[int]:
    told = view.wait_for("all markers", lambda: view.items(0, "restored", trial.ground.nodes))
    return {_step(line) for line in told}


def _step(line: Object) -> int:
    found = parse_restore(line["name"])
    if found is None:
        raise ValueError(f"the marker {line['name']!r} is not called <job>-s<step>-n<node>-w<worker>.restore")
    return found.step


def _end_well(view: ProbeView) -> None:
    view.wait_for("saves", lambda: view.items(0, "saved", len(view.pods())))
    view.end("done")
    view.wait_for("the condition Completed", lambda: view.condition("Completed"))


def _hot_swap(record: Record, cluster: KubernetesClient, trial: Trial) -> None:
    """A JobSet of higher priority comes for one slice while a lower one holds them all."""
    view = ProbeView(cluster, trial.ground.namespace, f"{trial.run}-low", trial.patience)
    above = ProbeView(cluster, trial.ground.namespace, f"{trial.run}-high", trial.patience)
    claim = "a JobSet of higher priority takes a whole slice from a lower one"
    made = []
    try:
        for name, value in ((LOW, 1000), (HIGH, 2000)):
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            if cluster.find(PRIORITY_CLASSES, name) is None:
                cluster.create(PRIORITY_CLASSES, {**body, "value": value})
            made.append(name)
        cpu = _large(cluster, trial)
        low, high = (
            probe_jobset(
                trial.ground,
                each.name,
                each.name,
                backup_minutes=trial.backup_minutes,
                save_seconds=trial.save_seconds,
                patience_seconds=trial.patience,
                priority=priority,
                cpu=cpu,
                sleep_only=True,
                slices=slices,
            )
            for each, priority, slices in ((view, LOW, None), (above, HIGH, 1))
        )
        with record.item("hot-swap.preempts", claim) as seen, _launched(view, low):
            view.wait_for("the lower JobSet runs", lambda: _running(view.pods(), trial.ground.nodes))
            with _launched(above, high):
                started = datetime.now(UTC)
                above.wait_for("the higher JobSet runs", lambda: _running(above.pods(), trial.ground.nodes_per_slice))
                took = (datetime.now(UTC) - started).total_seconds()
                pools = _pools(above, above.pods())
                seen.expect(len(pools) == 1, f"after {took:.0f} s on {', '.join(pools)}")
    finally:
        for name in made:
            cluster.delete(PRIORITY_CLASSES, name)


def _large(cluster: KubernetesClient, trial: Trial) -> str:
    selector = ",".join(f"{key}={value}" for key, value in sorted(trial.ground.node_selector.items()))
    nodes = cluster.list_all(NODES, labels=selector)
    if not nodes:
        raise NotJudged(f"no nodes with {selector}")
    found = str(nodes[0]["status"]["allocatable"]["cpu"])
    milli = int(found[:-1]) if found.endswith("m") else int(float(found) * 1000)
    return f"{int(milli * SHARE_OF_NODE)}m"


def _newest(bucket: BucketClient, trial: Trial) -> Backup | None:
    complete = _catalogue(bucket, trial).complete
    return complete[0] if complete else None


def _catalogue(bucket: BucketClient, trial: Trial) -> Catalogue:
    return bucket.run(contents(RunFolder(bucket.name, trial.run), Shape(trial.ground.nodes))).catalogue


def _placed(pods: list[Object], count: int) -> list[Object] | None:
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    return placed if len(placed) >= count else None


def _running(pods: list[Object], count: int) -> list[Object] | None:
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    return running if len(running) >= count else None


def _pools(view: ProbeView, pods: list[Object]) -> dict[str, set[str]]:
    pools: dict[str, set[str]] = {}
    for pod in pods:
        node = view.cluster.get(NODES, pod["spec"]["nodeName"])
        pool = node["metadata"]["labels"].get(labels.NODE_POOL, "none")
        pools.setdefault(pool, set()).add(pod["metadata"]["labels"][labels.JOB_INDEX])
    return pools


def _by_node(view: ProbeView, attempt: int) -> list[Object]:
    """Return node and rank of each pod of an attempt that has told both."""
    found = []
    for lines in view.told(attempt).values():
        seen = {line["item"]: line for line in lines}
        if "started" in seen and "rank-file" in seen:
            found.append({"node": seen["started"]["node"], "rank": seen["rank-file"]["rank"]})
    return found


def _restarted(jobset: Object, at_least: int) -> Object | None:
    status: Object = jobset.get("status") or {}
    return status if int(status.get("restarts") or 0) >= at_least else None
