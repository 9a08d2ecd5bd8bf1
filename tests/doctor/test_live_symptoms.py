"""Real faults of a real sandbox: each ends in the right cause and remedy, before its deadline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.clinic import Clinic, flat, only, remedy, root, shows

from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    DAEMON_SETS,
    JOBS,
    JOBSETS,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
)
from everstep.doctor.diagnosis import Confidence
from everstep.doctor.evidence import Target
from everstep.doctor.live import explained
from everstep.launch.labels import COMPLETION_INDEX
from everstep.provision.changes import Look, Mode, Waiting
from everstep.provision.cloud.policies import with_grants
from everstep.provision.cloud.run_access import STANDS_IN, run_grants
from everstep.provision.everything import provision
from everstep.provision.site import Site
from everstep.spec.findings import FindingsError, Severity
from everstep.spec.training import TrainingSpec
from everstep_sandbox.stack.furnish import request

pytestmark = pytest.mark.sandbox
Sandbox = Any
PRINCIPAL = (
    "principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
    "everstep-sandbox.svc.id.goog/subject/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node"
)

# What a node of a run does first with its folder.
REPORT = 'from everstep_trainer.bucket import Bucket; Bucket("everstep-demo").write("lm/everstep/status.json", b"{}")'


@pytest.fixture(autouse=True)
def clean(sandbox: Sandbox) -> Iterator[None]:
    """Each test finds no run, and ready drivers."""
    yield
    if sandbox.cluster.find(JOBSETS, "lm", "default") is not None:
        sandbox.cluster.patch(JOBSETS, "lm", {"metadata": {"finalizers": None}}, "default")
        sandbox.cluster.delete(JOBSETS, "lm", "default")
        for pod in sandbox.cluster.list_all(PODS, "default"):
            sandbox.cluster._request(
                "DELETE", PODS.path("default", pod["metadata"]["name"]), body={"gracePeriodSeconds": 0}
            )
    until(lambda: sandbox.cluster.find(JOBSETS, "lm", "default") is None)


def until(holds: Callable[[], Any], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def drivers_ready(sandbox: Sandbox) -> int:
    pods = sandbox.cluster.list_all(PODS, CHECKPOINTING_NAMESPACE)
    return sum(
        any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
        for pod in pods
    )


def number(sandbox: Sandbox) -> int:
    with sandbox.google.open() as google:
        return int(google.project_number("everstep-sandbox"))


def launch(sandbox: Sandbox, spec: TrainingSpec, **changes: Any) -> Target:
    sandbox.cluster.create(JOBSETS, sandbox.jobset(spec, **changes), "default")
    return Target.of_run(spec)


def configuration(name: str, bucket: str, selector: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "checkpointing.gke.io/v1",
        "kind": "CheckpointConfiguration",
        "metadata": {"name": name},
        "spec": {
            "cloudStorageBucketName": bucket,
            "nodeSelector": selector,
            "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
            "inMemoryVolumeSize": "256Mi",
        },
    }


def test_a_healthy_cluster_and_a_run_that_just_began_are_not_alarming(sandbox: Sandbox, spec: TrainingSpec) -> None:
    until(lambda: drivers_ready(sandbox) == 4)
    target = launch(sandbox, spec)
    until(lambda: len(sandbox.cluster.list_all(PODS, "default", fields="status.phase=Running")) == 2)
    found = sandbox.examine(target)
    assert [each for each in found if each.severity is not Severity.NOTE] == []
    assert "driver-unbound" not in [each.symptom for each in flat(found)]
    evidence = sandbox.evidence(target)
    assert evidence.unread == {}
    assert evidence.saw(
        "cluster", "buckets", "bucket-policies", "run-folder", "service-account", "nodes", "events", "jobs"
    )
    assert any(place.endswith("/replication-worker") for place in evidence.logs)


@shows("cluster-elsewhere")
def test_a_kubeconfig_that_leads_to_another_cluster_is_told_first(
    sandbox: Sandbox, spec: TrainingSpec, bare_kubernetes: Any
) -> None:
    astray = Clinic(bare_kubernetes.kubeconfig, sandbox.known.storage, sandbox.known.google)
    first, *_ = astray.examine(Target.of_cluster(spec.cluster_spec))
    astray.close()
    assert first.symptom == "cluster-elsewhere"
    assert first.cause.startswith(f"{bare_kubernetes.address} was asked")
    assert sandbox.known.kubernetes.removeprefix("http://") in first.evidence[0]
    assert remedy(first).startswith("gcloud container clusters get-credentials sandbox --location=us-east5-a")
    assert "configuration-missing" in [each.symptom for each in first.consequences]


@shows("driver-denied", "driver-not-ready")
def test_a_driver_without_rights_is_told_with_role_principal_and_bucket(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target = Target.of_cluster(spec.cluster_spec)
    sandbox.fault("driver-denied")
    try:
        found = sandbox.until(target, "driver-denied", later=600)
    finally:
        sandbox.fault("driver-denied", "--undo")
    denied = root(found, "driver-denied")
    principal = PRINCIPAL.format(number=number(sandbox))
    assert f"bucket everstep-demo: {principal} lacks roles/storage.objectUser" in denied.cause
    assert "storage.objects.list" in " ".join(denied.evidence)
    assert (
        f"gcloud storage buckets add-iam-policy-binding gs://everstep-demo --member={principal} "
        "--role=roles/storage.objectUser --condition=None" in denied.remedy
    )
    assert "driver-not-ready" in [each.symptom for each in denied.consequences]
    until(lambda: drivers_ready(sandbox) == 4)


@shows("driver-token")
def test_a_driver_without_token_leads_to_other_advice(sandbox: Sandbox, spec: TrainingSpec) -> None:
    sandbox.fault("token-failure")
    try:
        found = sandbox.until(Target.of_cluster(spec.cluster_spec), "driver-token")
    finally:
        sandbox.fault("token-failure", "--undo")
    told = root(found, "driver-token")
    assert "Unable to generate access token" in " ".join(told.evidence)
    assert "--workload-metadata=GKE_METADATA" in remedy(told)
    assert "add-iam-policy-binding" not in remedy(told)
    until(lambda: drivers_ready(sandbox) == 4)


@shows("principal-wrong", "driver-unbound")
def test_a_policy_that_names_the_driver_wrongly_is_told(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target, own = Target.of_cluster(spec.cluster_spec), number(sandbox)
    right = PRINCIPAL.format(number=own)
    wrong = right.replace(f"projects/{own}", "projects/everstep-sandbox").replace("everstep-sandbox.svc", f"{own}.svc")
    with sandbox.google.open() as google:
        policy = google.bucket_policy("everstep-demo")
        try:
            others = [one for one in policy["bindings"] if right not in one["members"]]
            google.set_bucket_policy("everstep-demo", {**policy, "bindings": others})
            unbound = only(sandbox.examine(target), "driver-unbound")
            assert right in unbound.cause
            # Drivers that are ready got in somehow: worth a note only.
            assert unbound.severity is Severity.NOTE

            bound = {"role": "roles/storage.objectUser", "members": [wrong]}
            now = google.bucket_policy("everstep-demo")
            google.set_bucket_policy("everstep-demo", {**now, "bindings": [*others, bound]})
            swapped = root(sandbox.examine(target), "principal-wrong")
        finally:
            now = google.bucket_policy("everstep-demo")
            google.set_bucket_policy("everstep-demo", {**policy, "etag": now["etag"]})
    assert "number and id in each other's place" in swapped.cause
    assert f"add-iam-policy-binding gs://everstep-demo --member={right} " in remedy(swapped)
    assert f"remove-iam-policy-binding gs://everstep-demo --member='{wrong}'" in remedy(swapped)


@shows("bucket-missing")
def test_a_bucket_that_is_not_there_explains_drivers_that_wait(sandbox: Sandbox, spec: TrainingSpec) -> None:
    data = spec.cluster_spec.model_dump(mode="json")
    data["checkpoint_configurations"]["everstep"]["bucket"] = "nowhere-at-all"
    target = Target.of_cluster(type(spec.cluster_spec).model_validate(data))
    missing = root(sandbox.examine(target), "bucket-missing")
    assert missing.object == "bucket nowhere-at-all"
    assert "everstep provision CLUSTER_FILE --mode apply" in remedy(missing)


@shows("bucket-not-hierarchical", "replicator-failed")
def test_a_flat_bucket_is_told_with_what_the_replicator_said(sandbox: Sandbox, spec: TrainingSpec) -> None:
    with sandbox.google.open() as google:
        uniform = {"uniformBucketLevelAccess": {"enabled": True}}
        google.create_bucket("everstep-sandbox", {"name": "flat-bucket", "iamConfiguration": uniform})
    folder = sandbox.bucket("flat-bucket")
    said = "Backup volume does NOT support atomic renames (GCS bucket is NOT HNS-enabled): x"
    report = {"launch": 1, "restart": 0, "rank": 0, "node": "n0", "replicator_failed": said}
    unknown = {**report, "rank": 1, "node": "n1", "replicator_failed": "Something nobody has seen before"}
    for one in (report, unknown):
        folder.write(f"lm/everstep/attempts/0001-0000/node-{one['rank']}.json", one, generation=None)
    folder.write("lm/atomic-rename-test/dummy-file", {}, generation=None)
    target = replace(launch(sandbox, spec), bucket="flat-bucket", buckets=("flat-bucket",))
    found = sandbox.examine(target, later=120)
    flat = root(found, "bucket-not-hierarchical")
    assert flat.object == "bucket flat-bucket"
    assert any("atomic-rename-test was left behind" in quote for quote in flat.evidence)
    assert "can't be turned on later" in flat.cause
    assert "--enable-hierarchical-namespace" in remedy(flat)
    assert any("replicator.failed of node n0" in quote for quote in flat.evidence)
    failed = only([flat], "replicator-failed")
    assert "Something nobody has seen before" in " ".join(failed.evidence)


@shows("configuration-conflict")
def test_two_configurations_of_the_same_nodes_are_told(sandbox: Sandbox, spec: TrainingSpec) -> None:
    other = configuration("second", "everstep-demo", {"node.kubernetes.io/instance-type": "ct6e-standard-4t"})
    sandbox.cluster.create(CHECKPOINT_CONFIGURATIONS, other)
    try:
        conflict = root(
            sandbox.until(Target.of_cluster(spec.cluster_spec), "configuration-conflict"), "configuration-conflict"
        )
    finally:
        sandbox.cluster.delete(CHECKPOINT_CONFIGURATIONS, "second")
    assert conflict.object == "CheckpointConfiguration second"
    assert "already have the driver of everstep" in conflict.cause
    assert "overlaps with existing configuration" in " ".join(conflict.evidence)
    assert "kubectl delete checkpointconfiguration second" in remedy(conflict)


def test_a_wait_that_fails_on_the_command_line_is_explained(
    sandbox: Sandbox, spec: TrainingSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_GOOGLE_ENDPOINT", sandbox.known.google)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", sandbox.known.storage)
    other = configuration("third", "everstep-demo", {"node.kubernetes.io/instance-type": "ct6e-standard-4t"})
    made = sandbox.cluster.create(CHECKPOINT_CONFIGURATIONS, other)
    waiting = Waiting("driver_ready", {"name": "third", "uid": made["metadata"]["uid"]}, "the driver of third", 60)

    class OneWait:
        title = "checkpoint configurations"

        def look(self) -> Look:
            return Look(waiting=waiting)

    try:
        with (
            Site(spec.cluster_spec, folder=tmp_path, kubeconfig=str(sandbox.known.kubeconfig)) as site,
            pytest.raises(FindingsError) as failure,
        ):
            provision(site, [OneWait()], Mode.APPLY, print)
    finally:
        sandbox.cluster.delete(CHECKPOINT_CONFIGURATIONS, "third")
    waited, *said = failure.value.findings
    assert waited.object == "CheckpointConfiguration third" and "overlaps with existing configuration" in waited.found
    assert [each.object for each in said] == ["CheckpointConfiguration third"]
    assert "kubectl delete checkpointconfiguration third" in said[0].remedy


@shows("configuration-stuck", "configuration-without-nodes")
def test_a_deletion_that_hangs_on_its_finalizer_is_told(sandbox: Sandbox, spec: TrainingSpec) -> None:
    sandbox.cluster.create(CHECKPOINT_CONFIGURATIONS, configuration("held", "everstep-demo", {"no": "node"}))
    target = Target.of_cluster(spec.cluster_spec)
    bare = only(sandbox.examine(target), "configuration-without-nodes", "held")
    assert "ct6e-standard-4t" in " ".join(bare.evidence)
    sandbox.fault("stuck-finalizer", "held")
    sandbox.cluster.delete(CHECKPOINT_CONFIGURATIONS, "held")
    try:
        assert "configuration-stuck" not in [each.symptom for each in sandbox.examine(target)]
        stuck = root(sandbox.examine(target, later=600), "configuration-stuck")
    finally:
        sandbox.fault("stuck-finalizer", "held", "--undo")
    assert "everstep.dev/stuck" in " ".join(stuck.evidence)
    assert "kubectl patch checkpointconfiguration held" in remedy(stuck)
    until(lambda: sandbox.cluster.find(CHECKPOINT_CONFIGURATIONS, "held") is None)


@shows("driver-missing", "volume-not-mounted")
def test_a_taint_that_the_driver_does_not_tolerate_is_named(sandbox: Sandbox, spec: TrainingSpec) -> None:
    node = "gke-sandbox-v6e-2x4-0-0"
    taints = sandbox.cluster.get(NODES, node)["spec"]["taints"]
    foreign = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    sandbox.cluster.patch(NODES, node, {"spec": {"taints": [*taints, foreign]}})
    (driver,) = sandbox.cluster.list_all(PODS, CHECKPOINTING_NAMESPACE, fields=f"spec.nodeName={node}")
    sandbox.cluster.delete(PODS, driver["metadata"]["name"], CHECKPOINTING_NAMESPACE)
    try:
        pinned = {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
        target = launch(sandbox, spec, **pinned)
        found = sandbox.until(target, "driver-missing", later=600)
        found = sandbox.until(target, "volume-not-mounted", later=600)
    finally:
        sandbox.cluster.patch(NODES, node, {"spec": {"taints": taints}})
    missing = root(found, "driver-missing")
    assert missing.object == f"node {node}"
    assert "team=vision:NoSchedule" in missing.cause
    assert "toleration for team" in remedy(missing) and "--recreate" in remedy(missing)
    mounted = only([missing], "volume-not-mounted")
    assert "driver is not on their nodes" in mounted.cause
    until(lambda: drivers_ready(sandbox) == 4)


@shows("pods-pending", "slice-missing")
def test_pending_pods_name_the_slice_and_what_is_amiss_with_its_nodes(sandbox: Sandbox, spec: TrainingSpec) -> None:
    node = "gke-sandbox-v6e-2x4-1-1"
    sandbox.cluster.patch(NODES, node, {"spec": {"unschedulable": True}})
    two = spec.model_copy(update={"slices": spec.slices.model_copy(update={"count": 2})}).on(spec.cluster_spec)
    try:
        found = sandbox.until(launch(sandbox, two), "pods-pending", later=60)
    finally:
        sandbox.cluster.patch(NODES, node, {"spec": {"unschedulable": None}})
    short = root(found, "slice-missing")
    assert "2 slices of 2 nodes are wanted and 1 are whole" in short.cause
    assert f"{node} is cordoned" in " ".join(short.evidence)
    assert "--node-pool=v6e-2x4-1 --num-nodes=2" in remedy(short)
    waiting = only([short], "pods-pending")
    assert " of 4 are placed; slice" in waiting.cause


@shows("pods-refused-account", "pods-refused-priority", "pods-refused-quota", "run-not-started")
@pytest.mark.parametrize(
    ("changes", "symptom", "cause", "command"),
    [
        (
            {"serviceAccountName": "nobody"},
            "pods-refused-account",
            "ServiceAccount default/nobody",
            "kubectl create serviceaccount nobody -n default",
        ),
        (
            {"priorityClassName": "urgent"},
            "pods-refused-priority",
            "PriorityClass urgent",
            "kubectl create priorityclass urgent",
        ),
        ({}, "pods-refused-quota", "a ResourceQuota of namespace default", "kubectl describe resourcequota -n default"),
    ],
)
def test_who_refuses_pods_is_named(
    sandbox: Sandbox, spec: TrainingSpec, changes: dict[str, Any], symptom: str, cause: str, command: str
) -> None:
    if symptom == "pods-refused-quota":
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
        sandbox.cluster.create(RESOURCE_QUOTAS, {**quota, "spec": {"hard": {"pods": "0"}}}, "default")
    try:
        found = sandbox.until(launch(sandbox, spec, **changes), symptom, later=600)
    finally:
        if symptom == "pods-refused-quota":
            sandbox.cluster.delete(RESOURCE_QUOTAS, "small", "default")
    refused = root(found, symptom)
    assert cause in refused.cause
    assert command in remedy(refused)
    assert "run-not-started" in [each.symptom for each in refused.consequences]


@shows("pods-refused-webhook")
def test_followers_that_jobsets_webhook_refuses_are_told_with_its_words(sandbox: Sandbox, spec: TrainingSpec) -> None:
    # A leader that failed is kept beside its successor, as the Job controller keeps it (jobset#1276).
    marks = {
        "jobset.sigs.k8s.io/jobset-name": "lm",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        "jobset.sigs.k8s.io/job-index": "0",
        COMPLETION_INDEX: "0",
    }
    container = {"name": "trainer", "image": "python:3.11", "command": ["false"]}
    body = {"nodeName": "gke-sandbox-v6e-2x4-1-0", "restartPolicy": "Never", "containers": [container]}
    stale = {"name": "lm-slice-0-0-stale", "labels": marks, "annotations": {COMPLETION_INDEX: "0"}}
    sandbox.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": stale, "spec": body}, "default")
    until(lambda: sandbox.cluster.get(PODS, stale["name"], "default")["status"].get("phase") == "Failed")
    refused = root(sandbox.until(launch(sandbox, spec), "pods-refused-webhook", later=600), "pods-refused-webhook")
    assert 'admission webhook "vpod.kb.io" denied the request: follower pod node' in " ".join(refused.evidence)
    assert "a leader that failed is still there" in refused.cause
    assert "kubectl delete jobs -n default -l jobset.sigs.k8s.io/jobset-name=lm" in remedy(refused)


@shows("image")
def test_an_image_that_is_not_there_is_an_error_after_a_grace_time(sandbox: Sandbox, spec: TrainingSpec) -> None:
    missing = spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"image": "nowhere/train:1"})})
    sandbox.fault("image-missing", "^nowhere/")
    try:
        target = launch(sandbox, missing.on(spec.cluster_spec))
        early = root(sandbox.until(target, "image"), "image")
        late = root(sandbox.examine(target, later=600), "image")
    finally:
        sandbox.fault("image-missing", "--undo")
    assert (early.severity, late.severity) == (Severity.WARNING, Severity.ERROR)
    assert late.object == "image nowhere/train:1"
    assert "gcloud artifacts docker images describe nowhere/train:1" in remedy(late)


@shows("container")
def test_a_container_that_can_not_be_configured_is_told(sandbox: Sandbox, spec: TrainingSpec) -> None:
    wanted = {"valueFrom": {"secretKeyRef": {"name": "absent", "key": "token"}}}
    body = sandbox.jobset(spec)
    pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "TOKEN", **wanted})
    sandbox.cluster.create(JOBSETS, body, "default")
    told = root(sandbox.until(Target.of_run(spec), "container"), "container")
    assert "secret absent" in told.cause
    assert "kubectl describe pod -n default lm-slice-0-" in remedy(told)


@shows("run-failed")
def test_a_failed_run_is_told_by_its_first_own_exit_code(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target = launch(sandbox, spec, **_with_command("echo no such data set; exit 64"))
    failed = root(sandbox.until(target, "run-failed"), "run-failed")
    assert "exit code 64 (configuration error)" in failed.cause
    assert "no such data set" in " ".join(failed.evidence)
    assert "kubectl logs -n default lm-slice-0-" in remedy(failed)


@shows("run-unbound")
def test_a_run_that_was_never_provisioned_is_told_what_its_pods_lack(sandbox: Sandbox, spec: TrainingSpec) -> None:
    pods = (
        f"principal://iam.googleapis.com/projects/{number(sandbox)}/locations/global/workloadIdentityPools/"
        "everstep-sandbox.svc.id.goog/subject/ns/default/sa/default"
    )
    plain = {"metadata": {"annotations": {STANDS_IN: None}}}
    whole_project = f"{sandbox.known.google}/v3/projects/everstep-sandbox"
    project = request("POST", f"{whole_project}:getIamPolicy", {})
    with sandbox.google.open() as google:
        policy = google.bucket_policy("everstep-demo")
        try:
            # A furnished sandbox lets all pods use all buckets; a project that was provisioned does not.
            request("POST", f"{whole_project}:setIamPolicy", {"policy": {**project, "bindings": []}})
            target = launch(sandbox, spec, **_with_command(f"exec {sys.executable} -c '{REPORT}'"))
            denied = root(sandbox.until(target, "run-unbound"), "run-unbound")
            assert denied.confidence is Confidence.CERTAIN
            assert f"gives {pods} nothing there" in denied.cause
            assert "storage.objects.create" in " ".join(denied.evidence)
            assert "put runs/lm.yaml with name: lm beside the folder of the cluster file" in denied.remedy[0]
            assert [f"add-iam-policy-binding gs://everstep-demo --member={pods} " in one for one in denied.remedy] == [
                False,
                True,
                True,
            ]

            # Without a word in the log it is the other runs' grants that tell.
            with_other = with_grants(policy, run_grants("everstep-demo", "lm-other", pods))
            google.set_bucket_policy("everstep-demo", with_other)
            likely = only(sandbox.examine(target, logs=0), "run-unbound")
            assert likely.confidence is Confidence.LIKELY

            # An account that acts as a Google service account has another name in the policy.
            acting = {"metadata": {"annotations": {STANDS_IN: "trainer@acme.iam.gserviceaccount.com"}}}
            sandbox.cluster.patch(SERVICE_ACCOUNTS, "default", acting, "default")
            assert "run-unbound" not in [each.symptom for each in flat(sandbox.examine(target))]
            sandbox.cluster.patch(SERVICE_ACCOUNTS, "default", plain, "default")
            only(sandbox.examine(target), "run-unbound")

            now = google.bucket_policy("everstep-demo")
            google.set_bucket_policy("everstep-demo", with_grants(now, run_grants("everstep-demo", "lm", pods)))
            assert "run-unbound" not in [each.symptom for each in flat(sandbox.examine(target))]
            until(lambda: sandbox.bucket("everstep-demo")._bucket.blob("lm/everstep/status.json").exists())
        finally:
            sandbox.cluster.patch(SERVICE_ACCOUNTS, "default", plain, "default")
            request("POST", f"{whole_project}:setIamPolicy", {"policy": {"bindings": project["bindings"]}})
            now = google.bucket_policy("everstep-demo")
            google.set_bucket_policy("everstep-demo", {**policy, "etag": now["etag"]})
            sandbox.bucket("everstep-demo")._bucket.delete_blobs(["lm/everstep/status.json"], on_error=print)


@shows("jobset-stuck")
def test_a_jobset_that_hangs_in_deletion_is_told(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target = launch(sandbox, spec)
    sandbox.cluster.patch(JOBSETS, "lm", {"metadata": {"finalizers": ["acme.dev/hold"]}}, "default")
    sandbox.cluster.delete(JOBSETS, "lm", "default")
    until(lambda: sandbox.cluster.list_all(JOBS, "default") == [])
    stuck = root(sandbox.until(target, "jobset-stuck", later=600), "jobset-stuck")
    assert "waits for whoever set the finalizer acme.dev/hold" in stuck.cause
    assert "kubectl patch jobset -n default lm" in remedy(stuck)


@shows("cloud-stockout", "cloud-quota", "operation-failed")
@pytest.mark.parametrize(
    ("kind", "symptom", "command"),
    [
        ("quota", "cloud-quota", "gcloud compute regions describe us-east5"),
        ("stockout", "cloud-stockout", "flex-start or a reservation"),
        ("internal", "operation-failed", "gcloud container operations describe"),
    ],
)
def test_what_gke_says_of_machines_is_told(
    sandbox: Sandbox, spec: TrainingSpec, kind: str, symptom: str, command: str
) -> None:
    target = Target.of_cluster(spec.cluster_spec)
    sandbox.fault("node-pool-fails", kind)
    with sandbox.google.open() as google:
        pool = {"name": f"more-{kind}", "initialNodeCount": 1}
        google.create_node_pool("everstep-sandbox", "us-east5-a", "sandbox", pool)
        found = sandbox.until(target, symptom)
        told = only(found, symptom, f"more-{kind}" if symptom != "operation-failed" else "")
        until(lambda: _gone(google, f"more-{kind}"))
    assert command in remedy(told)


def test_the_diagnosis_is_added_to_an_error_and_a_doctor_that_fails_hides_nothing(
    sandbox: Sandbox, spec: TrainingSpec
) -> None:
    from everstep.doctor.live import examine, opened

    target = launch(sandbox, spec, serviceAccountName="nobody")
    sandbox.until(target, "pods-refused-account")
    with opened(sandbox.access, sandbox.storage, None) as sources:
        told = explained("the run does not start", lambda: examine(target, sources))
    assert told.startswith("the run does not start\nThe doctor says:\n- pods of run lm: their ServiceAccount")
    assert "Remedy: kubectl create serviceaccount nobody -n default" in told

    def broken() -> Any:
        raise RuntimeError("the doctor is ill")

    def slow() -> Any:
        time.sleep(5)

    assert explained("the run does not start", broken) == "the run does not start"
    started = time.monotonic()
    assert explained("the run does not start", slow, seconds=0.3) == "the run does not start"
    assert time.monotonic() - started < 2


@shows("replicator-failed", "step-zero", "replicator-config", "backup-failed", "ram-disk-full")
@pytest.mark.parametrize(
    ("file", "said", "symptom", "severity", "command"),
    [
        ("failed", "Coordinator failed: StaleCoordinator()", "replicator-failed", "error", "kubectl delete jobs -l"),
        ("failed", "Something nobody has seen before", "replicator-failed", "error", "kubectl logs -n gke-managed-ch"),
        ("failed", "KeyError: 'replicated-step'", "step-zero", "error", "save first at step 1"),
        ("failed", "KeyError: 'backup-interval-minutes'", "replicator-config", "error", "backup_interval_minutes"),
        ("errors", "Failed: backup for step 40, 1 failures: [x]", "backup-failed", "warning", "rights and quotas"),
        ("errors", "OSError: [Errno 28] No space left on device", "ram-disk-full", "error", "in_memory_volume_size"),
    ],
)
def test_what_a_replicator_says_is_told(
    sandbox: Sandbox, spec: TrainingSpec, file: str, said: str, symptom: str, severity: str, command: str
) -> None:
    target = launch(sandbox, spec)
    until(lambda: len(sandbox.cluster.list_all(PODS, "default", fields="status.phase=Running")) == 2)
    (pod, *_) = sandbox.cluster.list_all(PODS, "default")
    done = sandbox.fault("replicator-says", pod["spec"]["nodeName"], file, said)
    assert len(done["logs"]) == 1
    told = [each for each in flat(sandbox.until(target, symptom)) if said in " ".join(each.evidence)]
    assert [(each.symptom, str(each.severity)) for each in told] == [(symptom, severity)]
    assert command in remedy(told[0])


# The last two: they take the add-on and a machine away.
@shows("addon-off", "configuration-missing")
def test_without_the_add_on_the_kind_is_not_there(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target = Target.of_cluster(spec.cluster_spec)
    sandbox.cluster.delete(CHECKPOINT_CONFIGURATIONS, "everstep")
    until(lambda: sandbox.cluster.find(CHECKPOINT_CONFIGURATIONS, "everstep") is None)
    absent = root(sandbox.examine(target), "configuration-missing")
    assert "everstep provision CLUSTER_FILE --mode apply" in remedy(absent)
    sandbox.fault("add-on-off")
    off = root(sandbox.until(target, "addon-off"), "addon-off")
    assert 'no matches for kind "CheckpointConfiguration"' in " ".join(off.evidence)
    assert "addonsConfig.highScaleCheckpointingConfig" in " ".join(off.evidence)
    assert (
        "gcloud container clusters update sandbox --location=us-east5-a --project=everstep-sandbox "
        "--update-addons=HighScaleCheckpointing=ENABLED,GcsFuseCsiDriver=ENABLED" in off.remedy
    )
    assert "configuration-missing" in [each.symptom for each in off.consequences]
    assert sandbox.cluster.list_all(DAEMON_SETS, CHECKPOINTING_NAMESPACE) == []


@shows("node-not-ready", "pods-stuck")
def test_a_silent_node_explains_what_hangs_on_it(sandbox: Sandbox, spec: TrainingSpec) -> None:
    target = launch(sandbox, spec, **_with_command("sleep 600"))
    until(lambda: len(sandbox.cluster.list_all(PODS, "default", fields="status.phase=Running")) == 2)
    (pod, *_) = sandbox.cluster.list_all(PODS, "default")
    node = pod["spec"]["nodeName"]
    sandbox.fault("node-silent", node, "--repair-after", "600")
    found = sandbox.until(target, "node-not-ready")
    found = sandbox.until(target, "pods-stuck", later=600, seconds=60)
    silent = root(found, "node-not-ready")
    assert silent.object == f"node {node}"
    assert f"kubectl delete node {node}" in remedy(silent)
    stuck = only([silent], "pods-stuck")
    assert "which does not answer" in stuck.cause


def _gone(google: Any, pool: str) -> bool:
    """Whether GKE is through with a pool that failed; what is left of it is deleted."""
    running = [one for one in google.operations("everstep-sandbox", "us-east5-a") if one["status"] != "DONE"]
    if running:
        return False
    names = [one["name"] for one in google.node_pools("everstep-sandbox", "us-east5-a", "sandbox")]
    if pool in names:
        google.delete_node_pool("everstep-sandbox", "us-east5-a", "sandbox", pool)
        return False
    return True


def _with_command(script: str) -> dict[str, Any]:
    return {
        "containers": [{"name": "trainer", "image": "python:3.11", "command": ["sh", "-c", script]}],
        "volumes": [],
    }
