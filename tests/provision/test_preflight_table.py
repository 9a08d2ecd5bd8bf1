"""What can be wrong with a run before it costs anything, as a table: severity, object, and a piece of the remedy."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.provision.test_preflight import backup, make_node, patch_status, put, subject

from everstep.clients.access import ClusterAccess, GoogleAccess
from everstep.clients.errors import NotFound
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CLUSTER_QUEUES,
    DAEMON_SETS,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
)
from everstep.provision import checks_of_place, preflight
from everstep.provision.cloud import policies, run_access
from everstep.provision.preflight import Subject
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import Finding, FindingsError
from everstep.spec.parsing import merge, parse
from everstep.spec.training import TrainingSpec
from everstep_sandbox.google.testing import running_google
from everstep_sandbox.kubernetes.kubeconfig import kubeconfig
from everstep_sandbox.stack import furnish

pytestmark = pytest.mark.sandbox
__all__ = ["subject"]

POOL = "pools.v6e-2x4"
CONFIGURATION = "checkpoint_configurations.everstep"
V5E = {f"{POOL}.accelerator": "tpu-v5-lite-podslice"}
Edits = dict[str, Any]

# Edits of the run file, edits of the cluster file, severity, object, a piece of what is said.
FILES: list[tuple[Edits, Edits, str, str, str]] = [
    ({"name": "Run_1"}, {}, "error", "name", ""),
    ({"name": "x" * 60}, {}, "error", "name", ""),
    ({"name": "1run"}, {}, "error", "name", ""),
    ({"cluster": "tokyo"}, {}, "error", "cluster", "'tokyo', as the run file says"),
    ({"priority": "training-hihg"}, {}, "error", "priority", "did you mean 'training-high'?"),
    ({"priority": None}, {}, "error", "priority", "name a priority"),
    ({"priority": "training-low"}, {}, "error", "priority", "a higher one"),
    ({"priority": "x"}, {"priorities": {}}, "error", "priority", "it has none"),
    ({"slices.pool": "v6e-4x4"}, {}, "error", "slices.pool", "did you mean 'v6e-2x4'?"),
    ({"slices.count": 4}, {}, "error", "slices.count", "enlarge the pool"),
    ({"slices.count": 0}, {}, "error", "slices.count", ""),
    ({"slices.count": 3, "slices.spare": "idle"}, {}, "error", "slices.count", "3 and an idle spare"),
    ({"slices.spare": "any"}, {}, "error", "slices.spare", ""),
    ({"checkpoints.size": "200MiB"}, {}, "error", "checkpoints.size", "set in_memory_volume_size to 440.0 MiB"),
    ({"checkpoints.size": "a lot"}, {}, "error", "checkpoints.size", "a size such as"),
    ({"checkpoints.parameters": 8e9}, {}, "error", "checkpoints", "either size or parameters"),
    ({"checkpoints.size": None, "checkpoints.parameters": 1e9}, {}, "error", "checkpoints.parameters", "2.2 times"),
    ({"checkpoints.data_parallelism": 3}, {}, "error", "checkpoints.data_parallelism", "1, 2, 4"),
    ({"checkpoints.local.every_steps": 0}, {}, "error", "checkpoints.local.every_steps", ""),
    ({"checkpoints.local.directory": "local"}, {}, "error", "checkpoints.local.directory", "absolute path"),
    ({"checkpoints.backup": {"every_minutes": 0}}, {}, "error", "checkpoints.backup.every_minutes", ""),
    ({"checkpoints.framework": "pickle"}, {}, "error", "checkpoints.framework", ""),
    ({"trainer.command": []}, {}, "error", "trainer.command", ""),
    ({"trainer.image": ""}, {}, "error", "trainer.image", ""),
    ({"trainer.grace_seconds": 601}, {}, "error", "trainer.grace_seconds", ""),
    ({"trainer.env": {"EVERSTEP_RUN": "x"}}, {}, "error", "trainer.env", "don't start with EVERSTEP_"),
    ({"trainer.resources": {"memory": "many"}}, {}, "error", "trainer.resources.memory", "a size such as"),
    ({"final_step": 0}, {}, "error", "final_step", ""),
    ({"recovery": {"attempts": 0}}, {}, "error", "recovery.attempts", ""),
    ({"recovery": {"on_kill": "explode"}}, {}, "error", "recovery.on_kill", ""),
    ({"retention": {"keep_last": 0}}, {}, "error", "retention.keep_last", ""),
    ({"retention": {"hourly": -1}}, {}, "error", "retention.hourly", "'always'"),
    ({"prioritty": "x"}, {}, "error", "prioritty", ""),
    ({}, {f"{CONFIGURATION}.bucket": "gs://acme"}, "error", f"{CONFIGURATION}.bucket", "no gs://"),
    ({}, {f"{CONFIGURATION}.in_memory_volume_size": 200000}, "error", CONFIGURATION, "such as 200Gi"),
    ({}, {f"{CONFIGURATION}.machine_type": "a3-highgpu-8g"}, "error", "checkpoint_configurations", "add a checkpoint"),
    ({}, {f"{CONFIGURATION}.tolerations": [{"operator": "Is"}]}, "error", CONFIGURATION, ""),
    ({}, {f"{POOL}.topology": "4x4"}, "error", "pools", "chips"),
    ({}, {f"{POOL}.topology": None}, "error", "pools", "a topology"),
    ({}, {f"{POOL}.accelerator": "nvidia-h100-80gb"}, "error", "pools", "accelerator tpu-v6e-slice"),
    (
        {},
        {f"{POOL}.accelerator": "nvidia-h100-80gb", f"{POOL}.machine_type": "a3-highgpu-8g"},
        "error",
        "pools",
        "no topology",
    ),
    ({}, {f"{POOL}.spot": True, f"{POOL}.flex_start": True}, "error", "pools", "one kind of capacity"),
    ({}, {"priorities": {"system-mine": 1}}, "error", "priorities", "which Kubernetes keeps"),
    ({}, {"priorities": {"training-high": 2_000_000_000}}, "error", "priorities", "at most 1000000000"),
    ({}, {"namespace": "Team"}, "error", "namespace", ""),
    ({}, {"endpoint": "secret"}, "error", "endpoint", ""),
    ({}, {"buckets": {"unused": {}}}, "error", "", "but 'unused' is neither"),
    ({"checkpoints.backup": {"every_minutes": 10}}, {}, "warning", "checkpoints.backup.every_minutes", "30 or more"),
    (
        {"checkpoints.backup": {"every_minutes": 0.5}},
        {},
        "warning",
        "checkpoints.backup.every_minutes",
        "for tests only",
    ),
    (
        {},
        {f"{POOL}.machine_type": "ct5e-hightpu-4t", f"{CONFIGURATION}.machine_type": "ct5e-hightpu-4t", **V5E},
        "note",
        "'ct5e-hightpu-4t'",
        "'ct5lp-hightpu-4t', for which it is taken",
    ),
    ({"slices.count": 3}, {}, "warning", "slices.spare", "a slice that somebody else runs on"),
]


@pytest.mark.parametrize(("run", "cluster", "severity", "where", "told"), FILES)
def test_what_is_wrong_with_the_files(
    run_data: Edits, cluster_data: Edits, run: Edits, cluster: Edits, severity: str, where: str, told: str
) -> None:
    findings = read(edited(run_data, run), edited(cluster_data, cluster))
    assert_told(findings, severity, where, told)


def edited(data: Edits, edits: Edits) -> Edits:
    """A file with some of its keys set, or taken away by None."""
    for dotted, value in edits.items():
        *parents, key = dotted.split(".")
        where = data
        for parent in parents:
            where = where[parent]
        where.pop(key, None)
        if value is not None:
            where[key] = value
    return data


def read(run: Mapping[str, Any], cluster: Mapping[str, Any]) -> list[Finding]:
    try:
        spec = parse(TrainingSpec, run, "run").on(parse(ClusterSpec, cluster, "cluster"))
    except FindingsError as refusal:
        return list(refusal.findings)
    return spec.findings()


def assert_told(findings: list[Finding], severity: str, where: str, told: str) -> None:
    fitting = [each for each in findings if str(each.severity) == severity and where in str(each) and told in str(each)]
    assert fitting, [str(each) for each in findings]


def unique(subject: Subject) -> str:
    return subject.spec.name.removeprefix("lm-")


def configuration(subject: Subject, change: Edits) -> None:
    subject.cluster.patch(CHECKPOINT_CONFIGURATIONS, f"config-{unique(subject)}", change)


def driver(subject: Subject) -> str:
    found = subject.cluster.get(CHECKPOINT_CONFIGURATIONS, f"config-{unique(subject)}")
    return f"multitier-driver-{found['metadata']['uid']}"


def memory(subject: Subject, allocatable: str) -> None:
    path = NODES.path(None, f"node-{unique(subject)}-0-0", "status")
    patch_status(subject.cluster, path, {"allocatable": {"memory": allocatable}})


def quota(subject: Subject, **hard: str) -> None:
    """A quota of a namespace of the run's own, in which nothing else is looked at."""
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"quota-{unique(subject)}"}}
    named = {key.replace("_", "."): value for key, value in hard.items()}
    subject.cluster.create(RESOURCE_QUOTAS, {**body, "spec": {"hard": named}}, "default")


def victim(subject: Subject) -> None:
    """A pod of low priority that takes its time to end."""
    name = f"victim-{unique(subject)}"
    limits = {"limits": {"google.com/tpu": "4"}}
    spec = {"priorityClassName": "training-low", "terminationGracePeriodSeconds": 300}
    spec |= {
        "nodeName": f"node-{unique(subject)}-0-0",
        "containers": [{"name": "x", "image": "x", "resources": limits}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    subject.cluster.create(PODS, body, "default")
    patch_status(subject.cluster, PODS.path("default", name, "status"), {"phase": "Running"})


def respec(subject: Subject, run: Edits, cluster: Edits | None = None) -> Subject:
    """The subject with other files."""
    cluster_spec = parse(ClusterSpec, merge(subject.spec.cluster_spec.model_dump(mode="json"), cluster), "cluster")
    spec = parse(TrainingSpec, merge(subject.spec.model_dump(mode="json"), run), "run").on(cluster_spec)
    return replace(subject, spec=spec)


def set_manager(subject: Subject, version: str) -> None:
    container = {"name": "manager", "image": f"registry.k8s.io/jobset/jobset:{version}"}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    subject.cluster.patch(DEPLOYMENTS, "jobset-controller-manager", body, "jobset-system", strategic=True)


def default_class(subject: Subject) -> None:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "by-default"}}
    subject.cluster.create(PRIORITY_CLASSES, {**body, "value": 5, "globalDefault": True})


def other_bucket(subject: Subject, **settings: Any) -> Subject:
    """The subject with another bucket, made with these settings."""
    name = f"other-{unique(subject)}"
    body = {"name": name, "hierarchicalNamespace": {"enabled": True}, **settings}
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    storage = subject.bucket.library_client._connection.API_BASE_URL
    data = json.dumps({**body, **uniform}).encode()
    url = f"{storage}/storage/v1/b?project=everstep"
    urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})).close()
    return replace(subject, bucket=type(subject.bucket)(subject.bucket._open_client, name))


def pulls_with(subject: Subject, secret: str) -> Subject:
    """The subject with an account that pulls images with a secret."""
    name = f"puller-{unique(subject)}"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    subject.cluster.create(SERVICE_ACCOUNTS, {**body, "imagePullSecrets": [{"name": secret}]}, "default")
    return respec(subject, {"trainer.service_account": name})


POD_POOL = (
    "principal://iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/everstep-sandbox.svc.id.goog"
)


def let_in(subject: Subject, *runs: str, account: str = "default") -> None:
    """Let the account's pods into these runs' folders, as provisioning does."""
    member = f"{POD_POOL}/subject/ns/default/sa/{account}"
    grants = [grant for run in runs for grant in run_access.run_grants(subject.bucket.name, run, member)]
    storage = subject.bucket.library_client._connection.API_BASE_URL
    url = f"{storage}/storage/v1/b/{subject.bucket.name}/iam"
    furnish.request("PUT", url, policies.with_grants(furnish.request("GET", url), grants))


Act = Callable[[Subject], Any]
# What is done to the cluster or bucket, severity, object, a piece of what is said.
PLACES: list[tuple[str, Act, str, str, str]] = [
    (
        "no class",
        lambda s: respec(s, {"priority": "new"}, {"priorities": {"new": 9, "a": 1}}),
        "error",
        "PriorityClass new",
        "everstep provision",
    ),
    (
        "another value",
        lambda s: respec(s, {}, {"priorities": {"training-high": 7, "a": 1}}),
        "error",
        "PriorityClass training-high",
        "can't be changed",
    ),
    (
        "no account",
        lambda s: respec(s, {"trainer.service_account": "nobody"}),
        "error",
        "ServiceAccount default/nobody",
        "kubectl create serviceaccount nobody",
    ),
    (
        "no pull secret",
        lambda s: pulls_with(s, "registry"),
        "error",
        "Secret default/registry",
        "kubectl create secret docker-registry registry -n default",
    ),
    ("no queue", lambda s: respec(s, {}, {"queue": "main"}), "error", "LocalQueue default/main", "set queue: null"),
    (
        "no configuration",
        lambda s: s.cluster.delete(CHECKPOINT_CONFIGURATIONS, f"config-{unique(s)}"),
        "error",
        "CheckpointConfiguration",
        "everstep provision CLUSTER_FILE",
    ),
    (
        "leaving",
        lambda s: (
            configuration(s, {"metadata": {"finalizers": ["a.dev/b"]}}),
            s.cluster.delete(CHECKPOINT_CONFIGURATIONS, f"config-{unique(s)}"),
            None,
        )[-1],
        "error",
        "CheckpointConfiguration",
        "wait for its end",
    ),
    (
        "another bucket",
        lambda s: configuration(s, {"spec": {"cloudStorageBucketName": "x"}}),
        "error",
        "CheckpointConfiguration",
        "--recreate",
    ),
    (
        "another size",
        lambda s: configuration(s, {"spec": {"inMemoryVolumeSize": "1Gi"}}),
        "error",
        "CheckpointConfiguration",
        "inMemoryVolumeSize '1Gi'",
    ),
    (
        "other nodes",
        lambda s: configuration(s, {"spec": {"nodeSelector": {"node.kubernetes.io/instance-type": "x"}}}),
        "error",
        "CheckpointConfiguration",
        "--recreate",
    ),
    (
        "no driver",
        lambda s: s.cluster.delete(DAEMON_SETS, driver(s), CHECKPOINTING_NAMESPACE),
        "error",
        "CheckpointConfiguration",
        "look for Conflict",
    ),
    (
        "no driver pod",
        lambda s: s.cluster.delete(PODS, f"{driver(s)}-0-0", CHECKPOINTING_NAMESPACE),
        "warning",
        "CheckpointConfiguration",
        "its driver pod is ending",
    ),
    (
        "little memory",
        lambda s: memory(s, "200Mi"),
        "error",
        "CheckpointConfiguration",
        "set in_memory_volume_size to less",
    ),
    ("hardly memory", lambda s: memory(s, "300Mi"), "warning", "CheckpointConfiguration", "80% of it"),
    (
        "too much asked",
        lambda s: (memory(s, "1Gi"), respec(s, {"trainer.resources": {"memory": "900Mi"}}))[-1],
        "error",
        "CheckpointConfiguration",
        "at most 768.0 MiB",
    ),
    (
        "a node is cordoned",
        lambda s: s.cluster.patch(NODES, f"node-{unique(s)}-1-1", {"spec": {"unschedulable": True}}),
        "error",
        "nodes of pool",
        "wait for the repair",
    ),
    (
        "a node is leaving",
        lambda s: s.cluster.patch(
            NODES,
            f"node-{unique(s)}-1-1",
            {"spec": {"taints": [{"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}]}},
        ),
        "error",
        "nodes of pool",
        "1 whole slices",
    ),
    (
        "a node is silent",
        lambda s: patch_status(
            s.cluster,
            NODES.path(None, f"node-{unique(s)}-1-1", "status"),
            {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        ),
        "error",
        "nodes of pool",
        "1 whole slices",
    ),
    (
        "a spare without a driver",
        lambda s: make_node(s.cluster, s.spec, f"node-{unique(s)}-2-0", "p"),
        "warning",
        "CheckpointConfiguration",
        "4 of 5 nodes",
    ),
    ("quota of pods", lambda s: quota(s, pods="3"), "error", "ResourceQuota", "pods: 3 at most"),
    (
        "quota of memory",
        lambda s: (quota(s, requests_memory="3Gi"), respec(s, {"trainer.resources": {"memory": "1Gi"}}))[-1],
        "error",
        "ResourceQuota",
        "kubectl edit resourcequota",
    ),
    ("a slow victim", victim, "warning", "victim", "waits up to 300 s"),
    (
        "no bucket",
        lambda s: replace(s, bucket=type(s.bucket)(s.bucket._open_client, "not-there-at-all")),
        "error",
        "gs://not-there-at-all",
        "--enable-hierarchical-namespace",
    ),
    (
        "a flat bucket",
        lambda s: other_bucket(s, hierarchicalNamespace={"enabled": False}),
        "error",
        "gs://other-",
        "an existing one can't be given it",
    ),
    (
        "a far bucket",
        lambda s: other_bucket(s, location="EUROPE-WEST4"),
        "warning",
        "gs://other-",
        "location europe-west4 for a cluster in us-east5",
    ),
    (
        "a bucket that keeps what was deleted",
        lambda s: other_bucket(s, softDeletePolicy={"retentionDurationSeconds": str(7 * 86400)}),
        "note",
        "gs://other-",
        "billed in full for 7 days more; expected off, where retention keeps its own trash; remedy: gcloud storage",
    ),
    (
        "pods that are not let in",
        lambda s: let_in(s, "another-run"),
        "warning",
        "/lm-",
        "everstep provision CLUSTER_FILE --mode apply; or by hand: gcloud storage buckets add-iam-policy-binding",
    ),
    (
        "forced to nothing",
        lambda s: put(s, "restore.version", "2026-11-01_10-00"),
        "error",
        "restore.version",
        "delete the object",
    ),
    ("nothing whole", lambda s: backup(s, "2026-11-01_10-00", 40, nodes=1), "error", "gs://", "allow_fresh_start"),
    (
        "sentinel",
        lambda s: put(s, "atomic-rename-test/dummy-file"),
        "warning",
        "atomic-rename-test",
        "is not hierarchical",
    ),
    ("an old controller", lambda s: set_manager(s, "v0.10.1"), "error", "JobSet", "--force-conflicts"),
    ("an unready controller", lambda s: set_manager(s, "v0.11.2"), "warning", "JobSet", "kubectl describe deployment"),
    ("a default class", default_class, "warning", "PriorityClass by-default", "kubectl patch priorityclass by-default"),
]


@pytest.mark.parametrize(
    ("act", "severity", "where", "told"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES]
)
def test_what_is_wrong_with_cluster_and_bucket(
    subject: Subject, act: Act, severity: str, where: str, told: str
) -> None:
    changed = act(subject)
    checked = changed if isinstance(changed, Subject) else subject
    try:
        assert_told(preflight.check(checked), severity, where, told)
    finally:
        # Shared by all rows.
        set_manager(subject, "v0.11.1")
        subject.cluster.delete(PRIORITY_CLASSES, "by-default")
        subject.cluster.delete(RESOURCE_QUOTAS, f"quota-{unique(subject)}", "default")
        path = PODS.path("default", f"victim-{unique(subject)}")
        with suppress(NotFound):
            subject.cluster._request("DELETE", path, body={"gracePeriodSeconds": 0})


def not_let_in(subject: Subject) -> list[str]:
    """What preflight says of the pods' access to the run's folder, or of not having seen it."""
    found = [str(each) for each in preflight.check(subject)]
    return [each for each in found if "lets pods in run by run" in each or "access to the run's folder" in each]


def test_pods_that_may_have_access_are_not_remarked_on(subject: Subject, cloud_storage: Any) -> None:
    # A bucket that lets in nobody run by run: a role on the project may do so.
    assert not_let_in(subject) == []
    let_in(subject, "another-run")
    (told,) = not_let_in(subject)
    assert f"{POD_POOL}/subject/ns/default/sa/default, not at all" in told
    try:
        cloud_storage.fault(match=f"/b/{subject.bucket.name}/iam", status=403, times=1)
        assert not_let_in(subject) == []
    finally:
        cloud_storage.clear_faults()
    # An account that acts as a Google service account has another name in policies.
    name = f"stands-in-{unique(subject)}"
    metadata = {"name": name, "annotations": {"iam.gke.io/gcp-service-account": "trainer@acme.iam.gserviceaccount.com"}}
    subject.cluster.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, "default"
    )
    assert not_let_in(respec(subject, {"trainer.service_account": name})) == []
    let_in(subject, subject.spec.name)
    assert not_let_in(subject) == []


LOCAL = LOCAL_QUEUES.path("default", "main")
BEHIND = CLUSTER_QUEUES.path(None, "tpus")
ADMITS = {"status": {"conditions": [{"type": "Active", "status": "True"}]}}
IDLE = {"status": {"conditions": [{"type": "Active", "status": "False", "message": "no flavor tpu"}]}}
LEADS = {"spec": {"clusterQueue": "tpus"}}
# Objects of Kueue as its documentation has them: there is no Kueue in the sandbox.
QUEUES: list[tuple[str, dict[str, Edits], str, str, str]] = [
    ("an idle queue", {LOCAL: LEADS | IDLE, BEHIND: ADMITS}, "error", "LocalQueue default/main", "no flavor tpu"),
    ("no cluster queue", {LOCAL: LEADS | ADMITS}, "error", "ClusterQueue tpus", "kubectl get clusterqueues"),
    (
        "an idle cluster queue",
        {LOCAL: LEADS | ADMITS, BEHIND: IDLE},
        "error",
        "ClusterQueue tpus",
        "kubectl describe clusterqueue tpus",
    ),
]


@pytest.mark.parametrize(
    ("objects", "severity", "where", "told"), [row[1:] for row in QUEUES], ids=[row[0] for row in QUEUES]
)
def test_what_is_wrong_with_queues(
    run_data: Edits,
    cluster_data: Edits,
    tmp_path: Path,
    objects: dict[str, Edits],
    severity: str,
    where: str,
    told: str,
) -> None:
    spec = parse(TrainingSpec, run_data, "run").on(parse(ClusterSpec, {**cluster_data, "queue": "main"}, "cluster"))
    with canned_api(tmp_path, objects) as client:
        assert_told(list(checks_of_place.queue(client, spec)), severity, where, told)


def test_a_queue_that_admits_is_not_remarked_on(run_data: Edits, cluster_data: Edits, tmp_path: Path) -> None:
    spec = parse(TrainingSpec, run_data, "run").on(parse(ClusterSpec, {**cluster_data, "queue": "main"}, "cluster"))
    with canned_api(tmp_path, {LOCAL: LEADS | ADMITS, BEHIND: ADMITS}) as client:
        assert list(checks_of_place.queue(client, spec)) == []


@contextmanager
def canned_api(folder: Path, objects: Mapping[str, Edits]) -> Iterator[KubernetesClient]:
    """An HTTP server that has these objects by their paths and no others, and a client of it."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = objects.get(self.path)
            body = json.dumps(found if found is not None else {"kind": "Status", "message": "not found"}).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        path = folder / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}", "token"))
        with ClusterAccess.of_kubeconfig(path).open() as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_pull_secrets_that_may_not_be_read_are_told_as_such(subject: Subject, bare_kubernetes: Any) -> None:
    checked = pulls_with(subject, "registry")
    bare_kubernetes.fault(match="/secrets/registry", status=403, times=1)
    assert_told(preflight.check(checked), "note", "Secret default/registry", "the launcher reads no secrets")


OPEN = {"dnsEndpointConfig": {"allowExternalTraffic": True}}
NETWORKS = {"enabled": True, "cidrBlocks": [{"cidrBlock": "203.0.113.0/24"}]}
# What the cluster file's endpoint is, what GKE says of the cluster's endpoints (None: of no such cluster).
ENDPOINTS: list[tuple[str, str, Edits | None, str, str, str]] = [
    ("no cluster", "dns", None, "error", "cluster sandbox", "gcloud container clusters list"),
    ("DNS endpoint off", "dns", {}, "error", "cluster sandbox", "--enable-dns-access"),
    ("no private address", "private", OPEN, "error", "cluster sandbox", "endpoint: dns in the cluster file"),
    (
        "no IP endpoints",
        "private",
        {"ipEndpointsConfig": {"enabled": False}},
        "error",
        "cluster sandbox",
        "--enable-ip-access",
    ),
    (
        "a private address within the region",
        "private",
        {"ipEndpointsConfig": {"enabled": True, "privateEndpoint": "10.0.0.2", "globalAccess": False}},
        "note",
        "cluster sandbox",
        "--enable-master-global-access",
    ),
    (
        "no public address",
        "public",
        {"ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": False}},
        "error",
        "cluster sandbox",
        "endpoint: dns or private",
    ),
    (
        "authorised networks",
        "public",
        {"ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": True, "authorizedNetworksConfig": NETWORKS}},
        "note",
        "cluster sandbox",
        "203.0.113.0/24",
    ),
]


@pytest.mark.parametrize(
    ("endpoint", "endpoints", "severity", "where", "told"),
    [row[1:] for row in ENDPOINTS],
    ids=[r[0] for r in ENDPOINTS],
)
def test_what_gke_says_of_the_endpoint(
    subject: Subject, tmp_path: Path, endpoint: str, endpoints: Edits | None, severity: str, where: str, told: str
) -> None:
    with running_google(tmp_path, speed=300) as google:
        open_google = GoogleAccess(endpoint=google.address).open
        with open_google() as client:
            client.enable_services("everstep-sandbox", ["container.googleapis.com"])
        if endpoints is not None:
            seed = {"name": "sandbox", "location": "us-east5-a", "controlPlaneEndpointsConfig": endpoints}
            google.command("clusters", seed)
        checked = replace(respec(subject, {}, {"endpoint": endpoint}), google=open_google)
        assert_told(preflight.check(checked), severity, where, told)


def test_a_gke_that_refuses_to_describe_the_cluster_is_a_warning(subject: Subject, tmp_path: Path) -> None:
    with running_google(tmp_path, speed=300) as google:
        google.command("faults", {"match": "/clusters/", "status": 403, "times": 1})
        checked = replace(respec(subject, {}, {"endpoint": "dns"}), google=GoogleAccess(endpoint=google.address).open)
        assert_told(preflight.check(checked), "warning", "the endpoint", "can't be looked at")


def test_the_table_is_long_enough() -> None:
    assert len(FILES) + len(PLACES) + len(QUEUES) + len(ENDPOINTS) >= 60
