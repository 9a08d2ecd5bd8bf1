"""Symptoms as their controllers would write them, through a real API server, a real bucket and GKE's API.

What the sandbox can really break is in test_live_symptoms; here are the shapes of what it can't.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import server
from tests.doctor.clinic import Clinic, only, remedy, root, shows

from everstep.clients.access import ClusterAccess, GoogleAccess
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    JOBSET_DEFINITION,
    JOBSET_NAMESPACE,
    JOBSETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
)
from everstep.doctor.diagnose import diagnose
from everstep.doctor.evidence import Evidence, Target
from everstep.launch import labels, manifest
from everstep.launch.lease import timestamp
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import Severity
from everstep.spec.training import TrainingSpec

pytestmark = pytest.mark.sandbox
HOUR = 3600.0


class Ward(Clinic):
    """One run on an API without controllers: every object stays as a test wrote it."""

    spec: TrainingSpec
    faults: Any

    @property
    def target(self) -> Target:
        """The run, without the checkpoint configuration of its cluster file: this API has none."""
        return replace(Target.of_run(self.spec), configurations={})

    def launch(self, **annotations: str) -> dict[str, Any]:
        """The run's JobSet."""
        body = manifest.build(self.spec, launch=1, holder="test")
        body["metadata"]["annotations"] |= annotations
        return self.cluster.create(JOBSETS, body, "default")

    def running(self, restarts: int = 0) -> None:
        """All slices ready."""
        ready = {"ready": 1, "succeeded": 0, "active": 1, "failed": 0, "suspended": 0}
        status = {"restarts": restarts, "replicatedJobsStatus": [{"name": "slice", **ready}]}
        self.status(JOBSETS, self.spec.name, status, "default")

    def pod(self, index: int, **status: Any) -> str:
        """A pod of the run."""
        name = f"{self.spec.name}-slice-0-{index}-abcde"
        run_labels = {labels.JOBSET_NAME: self.spec.name, labels.JOB_INDEX: "0", labels.RESTART_ATTEMPT: "0"}
        container = {
            "name": "trainer",
            "image": "python:3.11",
            "resources": {"limits": {"memory": "64Gi"}, "requests": {"memory": "64Gi"}},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": run_labels},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        self.cluster.create(PODS, body, "default")
        if status:
            self.status(PODS, name, status, "default")
        return name

    def event(self, about: str, reason: str, message: str, namespace: str = "default", kind: str = "Job") -> None:
        now = timestamp(datetime.now(UTC))[:19] + "Z"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about}.{uuid.uuid4().hex[:12]}"},
            "involvedObject": {"kind": kind, "name": about, "namespace": namespace},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": now,
        }
        self.cluster.create(EVENTS, body, namespace)

    def report(self, restart: int = 0, rank: int = 0, **content: Any) -> None:
        document = {"launch": 1, "restart": restart, "rank": rank, "node": f"node-{rank}", **content}
        self.record(f"attempts/0001-{restart:04d}/node-{rank}.json", document)

    def record(self, name: str, document: dict[str, Any]) -> None:
        self.bucket(self.spec.bucket).write(f"{self.spec.name}/everstep/{name}", document, generation=None)

    def backup(self, name: str, step: int) -> None:
        """A complete one."""
        bucket, run, digest = self.bucket(self.spec.bucket)._bucket, self.spec.name, "D" + "ab" * 32
        for node in range(self.spec.nodes):
            bucket.blob(f"{run}/{name}/{run}-s{step}-n{node}-w0.meta").upload_from_string(digest)
        bucket.blob(f"{run}/{name}/{digest}.data/manifest.ocdbt").upload_from_string("x")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with server("everstep_sandbox.kubernetes", tmp_path_factory.mktemp("ward"), "--api-only") as running:
        yield running


@pytest.fixture
def ward(
    api: Any, cloud_storage: Any, new_bucket: str, run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> Iterator[Ward]:
    run_data |= {"name": f"lm-{uuid.uuid4().hex[:6]}", "priority": None}
    run_data["slices"] = {"pool": "v6e-2x4", "count": 1, "spare": "none"}
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    cluster_data["priorities"] = {}
    made = Ward(api.kubeconfig, cloud_storage.address)
    made.spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    made.faults = cloud_storage
    yield made
    made.close()


def namespaced(ward: Ward, name: str) -> None:
    if ward.cluster.find(NAMESPACES, name) is None:
        ward.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@shows("cluster-unreachable")
def test_a_cluster_that_does_not_answer_is_the_only_thing_known(ward: Ward, tmp_path: Any, api: Any) -> None:
    text = api.kubeconfig.read_text().replace(api.address, "http://127.0.0.1:1")
    (tmp_path / "kubeconfig").write_text(text)
    ward.access = ClusterAccess.of_kubeconfig(tmp_path / "kubeconfig")
    evidence = ward.evidence(ward.target)
    found = root(diagnose(evidence), "cluster-unreachable")
    assert "gcloud container clusters get-credentials sandbox --location=us-east5-a" in remedy(found)
    assert not evidence.saw("nodes")
    assert [each.symptom for each in diagnose(evidence) if each.severity is Severity.ERROR] == ["cluster-unreachable"]


CLUSTERS = {
    "workload-identity-off": (
        {"workloadIdentityConfig": {}},
        "cluster {name}",
        "--workload-pool=everstep-sandbox.svc.id.goog",
    ),
    "metadata-server-off": (
        {
            "nodePools": [
                {
                    "name": "v6e-0",
                    "initialNodeCount": 1,
                    "config": {"machineType": "ct6e-standard-4t", "workloadMetadataConfig": {"mode": "GCE_METADATA"}},
                }
            ]
        },
        "node pool v6e-0",
        "gcloud container node-pools update v6e-0 --cluster={name}",
    ),
    "fuse-off": (
        {"addonsConfig": {"highScaleCheckpointingConfig": {"enabled": True}}},
        "cluster {name}",
        "--update-addons=GcsFuseCsiDriver=ENABLED",
    ),
    "cluster-not-running": (
        {"status": "DEGRADED", "conditions": [{"code": "UNKNOWN", "message": "the control plane can't be repaired"}]},
        "cluster {name}",
        "gcloud container clusters describe {name}",
    ),
}


@shows("api-disabled")
def test_an_api_that_is_not_enabled_is_told(ward: Ward, google: Any) -> None:
    ward.google = GoogleAccess(endpoint=google.address, storage_endpoint=ward.storage.endpoint)
    told = root(ward.examine(ward.target), "api-disabled")
    assert told.remedy == ("gcloud services enable container.googleapis.com --project=everstep-sandbox",)


@shows(*CLUSTERS)
@pytest.mark.parametrize("symptom", CLUSTERS)
def test_what_gke_says_of_the_cluster(ward: Ward, google: Any, symptom: str) -> None:
    document, about, command = CLUSTERS[symptom]
    name = f"tokyo-{symptom.partition('-')[0]}"
    pool = {"workloadPool": "everstep-sandbox.svc.id.goog"}
    google.command("clusters", {"name": name, "location": "us-east5-a", "workloadIdentityConfig": pool, **document})
    ward.google = GoogleAccess(endpoint=google.address, storage_endpoint=ward.storage.endpoint)
    with ward.google.open() as client:
        client.enable_services("everstep-sandbox", ["container.googleapis.com"])
    found = ward.examine(replace(Target.of_run(ward.spec), cluster=name))
    told = only(found, symptom)
    assert told.object == about.format(name=name)
    assert command.format(name=name) in remedy(told)


@shows("jobset-missing")
def test_without_jobset_nothing_can_be_launched(ward: Ward, tmp_path: Any) -> None:
    with server("everstep_sandbox.kubernetes", tmp_path / "empty", "--api-only", "--bare") as empty:
        ward.access = ClusterAccess.of_kubeconfig(empty.kubeconfig)
        found = ward.examine(ward.target)
    missing = root(found, "jobset-missing")
    assert 'no matches for kind "JobSet"' in " ".join(missing.evidence)
    assert "kubectl apply --server-side -f" in remedy(missing)
    assert ward.cluster.find(CUSTOM_RESOURCE_DEFINITIONS, JOBSET_DEFINITION) is not None


@shows("jobset-controller-down", "jobset-old")
def test_a_controller_that_is_killed_for_memory_is_told_with_the_patch(ward: Ward) -> None:
    name = "jobset-controller-manager"
    before = ward.cluster.get(DEPLOYMENTS, name, JOBSET_NAMESPACE)
    (container,) = before["spec"]["template"]["spec"]["containers"]
    old = {**container, "image": "registry.k8s.io/jobset/jobset:v0.10.1"}
    containers = {"containers": [{"name": "manager", "image": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "manager-1"}, "spec": containers}
    try:
        ward.cluster.patch(DEPLOYMENTS, name, {"spec": {"template": {"spec": {"containers": [old]}}}}, JOBSET_NAMESPACE)
        ward.status(DEPLOYMENTS, name, {"availableReplicas": 0, "unavailableReplicas": 1}, JOBSET_NAMESPACE)
        ward.cluster.create(PODS, pod, JOBSET_NAMESPACE)
        killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
        seen = {"name": "manager", "state": state, "lastState": killed, "ready": False, "restartCount": 7}
        seen |= {"image": "x", "imageID": "x"}
        ward.status(PODS, "manager-1", {"containerStatuses": [seen]}, JOBSET_NAMESPACE)
        found = ward.examine(replace(ward.target, preempts=True))
    finally:
        own = {"spec": {"template": {"spec": {"containers": [container]}}}}
        ward.cluster.patch(DEPLOYMENTS, name, own, JOBSET_NAMESPACE)
        ward.status(DEPLOYMENTS, name, {"availableReplicas": 1, "unavailableReplicas": 0}, JOBSET_NAMESPACE)
        ward.cluster.delete(PODS, "manager-1", JOBSET_NAMESPACE)
    down = root(found, "jobset-controller-down")
    assert "killed for want of memory" in down.cause
    assert '"memory":"2Gi"' in remedy(down) and "patch deployment jobset-controller-manager" in remedy(down)
    aged = root(found, "jobset-old")
    assert aged.severity is Severity.ERROR and "JobSet 0.10 " in aged.cause


@shows("priority-missing", "priority-differs", "priority-default")
def test_priority_classes_are_compared_with_the_cluster_file(ward: Ward) -> None:
    def make(name: str, value: int, **more: Any) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        ward.cluster.create(PRIORITY_CLASSES, {**kind, "value": value, **more})

    make("differs", 1000)
    make("everybody", 5, globalDefault=True)
    target = replace(ward.target, priority="absent", priorities={"absent": 7, "differs": 2000})
    try:
        found = ward.examine(target)
    finally:
        for name in ("differs", "everybody"):
            ward.cluster.delete(PRIORITY_CLASSES, name)
    assert "kubectl create priorityclass absent --value=7" in remedy(root(found, "priority-missing"))
    differs = root(found, "priority-differs")
    assert "its value is 1000" in differs.cause and "wants 2000" in differs.cause
    assert "globalDefault" in remedy(only(found, "priority-default", "everybody"))


@shows("run-folder-denied")
def test_a_folder_that_may_not_be_read_is_no_empty_folder(ward: Ward) -> None:
    rule = f"GET .*/b/{ward.spec.bucket}/o.*"
    ward.faults.fault(match=rule, status=403, times=50)
    try:
        evidence = ward.evidence(ward.target)
    finally:
        ward.faults.clear_faults()
    denied = root(diagnose(evidence), "run-folder-denied")
    assert "everstep permissions --for launcher --format iam" in remedy(denied)
    assert not evidence.saw("run-folder")


@shows("configuration-other-bucket", "driver-pending")
def test_a_configuration_with_another_bucket_and_a_driver_without_place(ward: Ward) -> None:
    body = {"cloudStorageBucketName": "another-bucket", "nodeSelector": {"a": "b"}, "inMemoryVolumeSize": "1Gi"}
    kind = {"apiVersion": "checkpointing.gke.io/v1", "kind": "CheckpointConfiguration"}
    ward.cluster.create(CHECKPOINT_CONFIGURATIONS, {**kind, "metadata": {"name": "everstep"}, "spec": body})
    namespaced(ward, CHECKPOINTING_NAMESPACE)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "multitier-driver-x", "labels": {"k8s-app": "high-scale-checkpointing"}},
        "spec": {"containers": [{"name": "csi", "image": "csi"}]},
    }
    ward.cluster.create(PODS, pod, CHECKPOINTING_NAMESPACE)
    why = "0/4 nodes are available: 1 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    try:
        ward.status(PODS, "multitier-driver-x", {"conditions": [condition]}, CHECKPOINTING_NAMESPACE)
        found = ward.examine(Target.of_run(ward.spec))
    finally:
        ward.cluster.delete(CHECKPOINT_CONFIGURATIONS, "everstep")
        ward.cluster.delete(PODS, "multitier-driver-x", CHECKPOINTING_NAMESPACE)
    other = only(found, "configuration-other-bucket")
    assert f"looks in {ward.spec.bucket!r}" in other.cause
    pending = root(found, "driver-pending")
    assert "serves no new CheckpointConfiguration" in pending.cause
    assert "Insufficient memory" in " ".join(pending.evidence)


@shows("node-maintenance", "node-faulty")
def test_nodes_that_are_about_to_go_are_told(ward: Ward) -> None:
    own = {**ward.spec.pool.node_labels(), labels.NODE_POOL: "v6e-0"}
    soon = str(int((datetime.now(UTC) + timedelta(hours=3)).timestamp()))
    nodes: dict[str, tuple[dict[str, str], list[dict[str, str]]]] = {
        "going": ({}, [{"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}]),
        "planned": ({"cloud.google.com/scheduled-maintenance-time": soon}, []),
        "faulty": ({"cloud.google.com/fault-behavior": "SDC"}, []),
    }
    for name, (more, taints) in nodes.items():
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**own, **more}}}
        ward.cluster.create(NODES, {**body, "spec": {"taints": taints}})
        ward.status(NODES, name, {"conditions": [{"type": "Ready", "status": "True"}]})
    try:
        found = ward.examine(ward.target)
    finally:
        for name in nodes:
            ward.cluster.delete(NODES, name)
    assert only(found, "node-maintenance", "going").severity is Severity.WARNING
    assert "begins in 3.0 h" in only(found, "node-maintenance", "planned").cause
    assert "kubectl drain faulty" in remedy(only(found, "node-faulty"))


@shows("pods-refused-webhook", "pods-refused")
@pytest.mark.parametrize(
    ("message", "symptom", "cause", "command"),
    [
        (
            'admission webhook "vpod.kb.io" denied the request: expected 1 leader pod, found 2 for follower',
            "pods-refused-webhook",
            "a leader that failed is still there",
            "kubectl delete jobs -n default -l jobset.sigs.k8s.io/jobset-name=",
        ),
        (
            'Internal error occurred: failed calling webhook "mpod.kb.io": connection refused',
            "pods-refused-webhook",
            "an admission webhook refuses them",
            "kubectl get pods -n jobset-system",
        ),
        ("pods is forbidden: node quota of the moon", "pods-refused", "none can be made", "kubectl describe jobs"),
    ],
)
def test_other_refusals_of_pods(ward: Ward, message: str, symptom: str, cause: str, command: str) -> None:
    ward.launch()
    ward.event(f"{ward.spec.name}-slice-0", "FailedCreate", f"Error creating: {message}")
    told = root(ward.examine(ward.target), symptom)
    assert cause in told.cause
    assert command in remedy(told)
    assert message.partition(": ")[2][:20] in " ".join(told.evidence)


LINES = {
    "replicator-config": "KeyError: 'backup-interval-minutes'",
    "step-zero": "Coordinator failed: KeyError: 'replicated-step'",
    "ram-disk-full": "OSError: [Errno 28] No space left on device: '/local/abc.data'",
    "backup-failed": "Failed: backup for step 40, 1 failures: [OSError('Failed to copy x')]",
    "backup-overlap": "Backup thread for step 40 is still running, skipping backup",
    "no-progress": "New step 60 has the same hash as previous step. Seems the training is not making progress",
}
REMEDIES = {
    "replicator-config": "backup_interval_minutes",
    "step-zero": "step 1 or later",
    "ram-disk-full": "in_memory_volume_size",
    "backup-failed": "rights and quotas",
    "backup-overlap": "checkpoints.backup.every_minutes",
    "no-progress": "everstep resume",
}


@shows(*LINES)
@pytest.mark.parametrize("symptom", LINES)
def test_lines_of_the_replicator_have_a_meaning(ward: Ward, symptom: str) -> None:
    level = "CRT" if symptom in ("replicator-config", "step-zero", "ram-disk-full") else "ERR"
    prefix = f"2026-11-30 06:00:00.000 1:1 job={ward.spec.name} node=0/2 [{level}] sync.sync(1): "
    harmless = f"{prefix}New config 'replicator.yaml' detected. Terminating."
    ward.report(replicator_failed=f"{harmless}\n{prefix}{LINES[symptom]}")
    told = root(ward.examine(ward.target), symptom)
    assert REMEDIES[symptom] in remedy(told)
    assert LINES[symptom][:20] in " ".join(told.evidence)
    assert "New config" not in " ".join(told.evidence)


def test_what_the_replicator_says_at_every_start_alarms_nobody(ward: Ward) -> None:
    evidence = Evidence(ward.target)
    lines = ("New config 'replicator.yaml' detected. Terminating.", "No valid checkpoints found anywhere")
    text = "\n".join(
        f"2026-11-30 06:00:00.000 1:1 job={ward.spec.name} node=0/2 [ERR] a.b(1): {line}" for line in lines
    )
    evidence.logs["gke-managed-checkpointing/driver-1/replication-worker"] = text
    assert diagnose(evidence) == []


@shows("fresh-start")
def test_a_fresh_start_beside_a_complete_backup_is_told(ward: Ward) -> None:
    ward.backup("2026-11-01_10-00", 40)
    line = (
        f"2026-11-30 06:00:00.000 1:1 job={ward.spec.name} node=0/2 [ERR] a.b(1): No valid checkpoints found anywhere"
    )
    ward.report(restored_tier="fresh", first_step_at="2026-11-30T06:00:00Z", replicator_failed=line)
    told = root(ward.examine(ward.target), "fresh-start")
    assert "number of nodes or its data parallelism" in told.cause
    assert f"gcloud storage ls gs://{ward.spec.bucket}/{ward.spec.name}/" in remedy(told)


@shows("ranks-not-given", "topology-unknown")
def test_shapes_that_get_no_ranks_are_told(ward: Ward) -> None:
    body = manifest.build(ward.spec, launch=1, holder="test")
    del body["metadata"]["annotations"][labels.EXCLUSIVE_TOPOLOGY]
    made = ward.cluster.create(JOBSETS, body, "default")
    assert labels.EXCLUSIVE_TOPOLOGY in remedy(only(ward.examine(ward.target), "topology-unknown"))
    ward.cluster.delete(JOBSETS, ward.spec.name, "default")

    (slices,) = body["spec"]["replicatedJobs"]
    body["spec"]["replicatedJobs"] = [slices, {**slices, "name": "head"}]
    ward.cluster.create(JOBSETS, body, "default")
    told = only(ward.examine(ward.target), "ranks-not-given")
    assert "2 replicated jobs (slice, head)" in told.cause
    assert "one replicated job" in remedy(told)
    assert made["metadata"]["name"] == ward.spec.name


@shows("out-of-memory")
def test_memory_is_told_with_limit_and_ram_disk(ward: Ward) -> None:
    ward.launch()
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-30T06:00:00Z"}}
    container = {"name": "trainer", "state": ended, "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    pod = ward.pod(0, phase="Failed", containerStatuses=[container])
    told = root(ward.examine(ward.target), "out-of-memory")
    assert "whole RAM disk" in told.cause
    assert f"pod default/{pod}: OOMKilled, memory limit 64Gi" in told.evidence
    assert "trainer.resources.memory" in remedy(told)


@shows("restarts-in-vain")
def test_restarts_without_a_step_gained_are_told(ward: Ward) -> None:
    ward.launch()
    ward.running(restarts=3)
    for restart in range(4):
        ended = {"code": 70, "reason": "ValueError: loss is nan", "at": f"2026-11-30T06:0{restart}:00Z"}
        ward.report(restart, last_step=40, ended=ended if restart < 3 else None)
    told = root(ward.examine(ward.target), "restarts-in-vain")
    assert "restarted 3 times without getting beyond step 40" in told.cause
    assert "loss is nan" in told.cause
    assert "kubectl logs -n default -l jobset.sigs.k8s.io/jobset-name=" in remedy(told)


@shows("run-silent", "backup-late")
def test_a_run_that_reports_nothing_and_is_not_backed_up_is_told(ward: Ward) -> None:
    ward.launch()
    ward.running(restarts=2)
    ward.record("status.json", {"step": 50, "phase": "training", "updated": timestamp(datetime.now(UTC))})
    assert ward.examine(ward.target) == []
    found = ward.examine(ward.target, later=2 * HOUR)
    silent = only(found, "run-silent")
    assert "step 50" in silent.cause
    late = only(found, "backup-late")
    assert "no complete backup for 2.0 h" in late.cause
    assert "2 restarts: the timer starts anew" in late.cause
    assert "checkpoints.backup.every_minutes" in remedy(late)
    now = datetime.now(UTC) + timedelta(hours=2)
    ward.backup(now.strftime("%Y-%m-%d_%H-%M"), 60)
    ward.record("status.json", {"step": 60, "phase": "training", "updated": timestamp(now)})
    # The backup's objects are of today, so judged a little later it is a fresh one.
    assert ward.examine(ward.target, later=300) == []


@shows("run-suspended")
@pytest.mark.parametrize("stopped", ["it failed twice in the same way", ""])
def test_a_suspended_run_is_told_with_who_did_it(ward: Ward, stopped: str) -> None:
    ward.launch(**({"everstep.dev/stopped": stopped} if stopped else {}))
    ward.cluster.patch(JOBSETS, ward.spec.name, {"spec": {"suspend": True}}, "default")
    told = root(ward.examine(ward.target), "run-suspended")
    assert (stopped or "somebody suspended its JobSet") in told.cause
    assert ("launch the run again" if stopped else f"kubectl patch jobset -n default {ward.spec.name}") in remedy(told)


@shows("lease-held")
def test_a_lease_of_somebody_else_is_told_with_its_holder(ward: Ward) -> None:
    now = datetime.now(UTC)
    lease = {
        "run": ward.spec.name,
        "holder": "https://other-airflow|dag",
        "purpose": "launch",
        "acquired": timestamp(now),
        "expires": timestamp(now + timedelta(minutes=10)),
        "jobset": {"namespace": "elsewhere", "name": ward.spec.name, "uid": "u"},
    }
    ward.record("lease.json", lease)
    told = root(ward.examine(ward.target), "lease-held")
    assert "held by https://other-airflow|dag" in told.cause
    assert f"kubectl get jobset -n elsewhere {ward.spec.name}" in remedy(told)
    made = ward.launch()
    ward.record("lease.json", lease | {"jobset": {"namespace": "default", "name": "x", "uid": made["metadata"]["uid"]}})
    assert ward.examine(ward.target) == []


@shows("queue-missing", "queue-inactive", "queue-waits")
def test_what_kueue_says_is_told(ward: Ward) -> None:
    target = replace(ward.target, queue="team")
    # Without Kueue the queue is not there, which the API itself says.
    missing = root(ward.examine(target), "queue-missing")
    assert missing.object == "LocalQueue default/team"
    assert "kubectl get localqueues -n default" in remedy(missing)

    ward.launch()
    ward.cluster.patch(JOBSETS, ward.spec.name, {"spec": {"suspend": True}}, "default")
    evidence = ward.evidence(target)
    inactive = {
        "type": "Active",
        "status": "False",
        "reason": "FlavorNotFound",
        "message": "Can't admit new workloads: references missing ResourceFlavor(s): [tpu].",
    }
    reserved = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "couldn't assign flavors to pod set slice: insufficient quota for google.com/tpu, 4 more needed",
    }
    # Objects as Kueue 0.14 writes them: the sandbox has no Kueue.
    evidence.objects["local-queue"] = [{"metadata": {"name": "team", "namespace": "default"}, "status": {}}]
    evidence.objects["cluster-queue"] = [{"metadata": {"name": "all"}, "status": {"conditions": [inactive]}}]
    evidence.objects["workloads"] = [{"metadata": {"name": "jobset-x"}, "status": {"conditions": [reserved]}}]
    found = diagnose(evidence)
    blocked = root(found, "queue-inactive")
    assert blocked.object == "ClusterQueue all" and "ResourceFlavor" in " ".join(blocked.evidence)
    waits = only([blocked], "queue-waits")
    assert "4 more needed" in waits.cause
    assert "kubectl describe workload -n default jobset-x" in remedy(waits)
