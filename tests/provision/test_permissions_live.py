"""Everstep with the rights that `everstep permissions` prints, on the real control plane: enough, and none unused."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conformance.api import Api
from tests.conformance.hollow_kubelet import HollowKubelet

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.errors import NotFound
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBSETS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    WORKLOADS,
    Resource,
)
from everstep.doctor.evidence import Target
from everstep.doctor.gather import gather
from everstep.doctor.live import opened
from everstep.launch.launcher import Launcher
from everstep.launch.outcome import conclude
from everstep.provision import preflight, priority_classes
from everstep.provision.changes import Mode, Waiting
from everstep.provision.in_cluster import users
from everstep.provision.in_cluster.checkpointing import kind_served
from everstep.provision.in_cluster.reading import Reader
from everstep.provision.in_cluster.steps import in_cluster_steps
from everstep.provision.permission_files import rbac_text
from everstep.provision.permissions import IDENTITIES, service_account_subject
from everstep.provision.preflight import Subject
from everstep.provision.site import Site
from everstep.provision.steps import Report, advance
from everstep.provision.upgrade import after_upgrade, before_upgrade
from everstep.provision.waits import KINDS
from everstep.retain.held_run import HeldRun
from everstep.spec.cluster import ClusterSpec
from everstep.spec.training import TrainingSpec
from everstep.watch.follower import Follower, WaitEnd
from everstep.watch.triggers import TrainingTrigger

pytestmark = [pytest.mark.controlplane]
TEAM, AIRFLOW = "team", "airflow"
Use = tuple[str, str, str, str]
"""Identity, verb, plural, namespace (empty for objects without one)."""


@dataclass
class Cluster:
    """The real control plane, with a service account for each identity and nothing but its printed rights."""

    directory: Path
    admin: KubernetesClient
    storage: StorageAccess
    spec: TrainingSpec
    kubelet: HollowKubelet

    def access(self, identity: str) -> ClusterAccess:
        """The way to the cluster as that identity."""
        path = self.directory / f"{identity}.kubeconfig"
        if not path.exists():
            asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            token = self.admin._request("POST", SERVICE_ACCOUNTS.path(AIRFLOW, identity, "token"), body=asked)
            config = yaml.safe_load((self.directory / "kubeconfig").read_text())
            config["users"][0]["user"] = {"token": token["status"]["token"]}
            path.write_text(yaml.safe_dump(config))
        return ClusterAccess.of_kubeconfig(path)

    def launcher(self) -> Launcher:
        """The launcher with its own rights."""
        return Launcher(self.spec, self.access("launcher").open(), self.storage.open(self.spec.bucket), "me")

    def requests(self) -> Iterator[dict[str, Any]]:
        """What the identities asked for, from the API server's own audit log."""
        for line in (self.directory / "audit.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry["user"]["username"].startswith(f"system:serviceaccount:{AIRFLOW}:"):
                yield entry

    def add_slice(self, number: int) -> None:
        """A node pool whose nodes are played."""
        for host in range(self.spec.pool.nodes_per_slice):
            labels = {**self.spec.pool.node_labels(), "cloud.google.com/gke-nodepool": f"pool-{number}"}
            self.kubelet.add_node(f"node-{number}-{host}", labels, {self.spec.pool.resource: "4"}, [])

    def wait_until_ready(self, restarts: int) -> None:
        """Until all slices of that attempt run."""
        deadline = time.monotonic() + 90
        while True:
            status = self.admin.get(JOBSETS, self.spec.name, TEAM).get("status") or {}
            ready = sum(each["ready"] for each in status.get("replicatedJobsStatus", ()))
            if ready == self.spec.slices.count and int(status.get("restarts") or 0) == restarts:
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.1)

    def fail_a_pod(self, code: int) -> None:
        """One trainer ends so."""
        running = [pod for pod in self.admin.list_all(PODS, TEAM) if pod["status"]["phase"] == "Running"]
        self.kubelet.finish(running[0], code)


@pytest.fixture
def cluster(
    real_control_plane: Path,
    cloud_storage: Any,
    new_bucket: str,
    run_data: dict[str, Any],
    cluster_data: dict[str, Any],
) -> Iterator[Cluster]:
    cluster_data |= {"namespace": TEAM}
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    run_data["trainer"]["service_account"] = "trainer"
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    admin = ClusterAccess.of_kubeconfig(real_control_plane / "kubeconfig").open()
    for name in (TEAM, AIRFLOW):
        admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    admin.create(SERVICE_ACCOUNTS, account("trainer"), TEAM)
    for identity in IDENTITIES.values():
        admin.create(SERVICE_ACCOUNTS, account(identity.name), AIRFLOW)
        subject = service_account_subject(AIRFLOW, identity.name)
        for document in yaml.safe_load_all(rbac_text(identity, namespace=TEAM, subject=subject)):
            where = document["metadata"].get("namespace")
            plural = document["kind"].lower() + "s"
            kind = Resource("rbac.authorization.k8s.io", "v1", plural, namespaced=where is not None)
            admin.create(kind, document, where)
    configure_checkpointing(admin, spec)
    api = Api(real_control_plane / "kubeconfig")
    kubelet = HollowKubelet(api)
    kubelet.start()
    try:
        yield Cluster(real_control_plane, admin, StorageAccess(endpoint=cloud_storage.address), spec, kubelet)
    finally:
        kubelet.stop()
        api.close()


def account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def configure_checkpointing(admin: KubernetesClient, spec: TrainingSpec) -> None:
    """Multi-tier checkpointing as objects."""
    name, wanted = spec.cluster_spec.configuration_of(spec.pool.machine_type) or ("", None)
    assert wanted is not None
    body = {
        "cloudStorageBucketName": wanted.bucket,
        "nodeSelector": {"node.kubernetes.io/instance-type": wanted.machine_type},
        "inMemoryVolumeSize": wanted.in_memory_volume_size,
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    made = admin.create(
        CHECKPOINT_CONFIGURATIONS,
        {
            "apiVersion": "checkpointing.gke.io/v1",
            "kind": "CheckpointConfiguration",
            "metadata": {"name": name},
            "spec": body,
        },
    )
    labels = {"k8s-app": "high-scale-checkpointing"}
    driver = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"nodeSelector": {"never": "here"}, "containers": [{"name": "driver", "image": "none"}]},
        },
    }
    admin.create(
        DAEMON_SETS,
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": f"multitier-driver-{made['metadata']['uid']}"},
            "spec": driver,
        },
        CHECKPOINTING_NAMESPACE,
    )


async def test_the_printed_rights_are_enough_for_a_run_and_none_is_left_unused(cluster: Cluster) -> None:
    spec, bucket = cluster.spec, cluster.storage.open(cluster.spec.bucket)

    def check(checked: TrainingSpec) -> list[str]:
        found = preflight.check(Subject(checked, cluster.access("launcher").open(), bucket))
        return [str(finding) for finding in found if "can't be looked at" in finding.found]

    with_queue = spec.cluster_spec.model_copy(update={"queue": "kueue"})
    assert await asyncio.to_thread(check, spec.on(with_queue)) == []
    for name, value in spec.cluster_spec.priorities.items():
        priority_classes.create(cluster.admin, name, value)
    assert await asyncio.to_thread(check, spec) == []

    launched = await asyncio.to_thread(cluster.launcher().launch)
    follower = Follower(
        access=cluster.access("watcher"),
        storage=cluster.storage,
        bucket=spec.bucket,
        run=spec.name,
        namespace=TEAM,
        uid=launched.state.uid,
        launch=launched.launch,
        deadline=time.time() + 120,
        look_every=0.5,
        log=logging.getLogger("test"),
    )
    following = asyncio.create_task(follower.follow())
    # With one slice of two, the wait looks at pods that don't start and at who is refused.
    await asyncio.to_thread(cluster.add_slice, 0)
    starting = {("watcher", "list", plural, TEAM) for plural in ("pods", "events")}
    await asyncio.to_thread(until_used, cluster, starting)
    await asyncio.to_thread(cluster.add_slice, 1)
    await asyncio.to_thread(cluster.wait_until_ready, 0)
    # A sweep beside the training asks which cluster this is, and whether the lease's JobSet lives.
    await asyncio.to_thread(hold_for_a_sweep, cluster)
    queued = replace(Target.of_run(spec), queue=await asyncio.to_thread(local_queue, cluster.admin))
    assert await asyncio.to_thread(unseen_by_doctor, cluster, "launcher", queued) == []
    # A peer that is lost makes the set restart, and the wait look at the failed pod and its node.
    await asyncio.to_thread(cluster.fail_a_pod, 75)
    await asyncio.to_thread(until_used, cluster, {("watcher", "get", "nodes", "")})
    await asyncio.to_thread(cluster.wait_until_ready, 1)
    await asyncio.to_thread(cluster.fail_a_pod, 64)
    assert (await following)["kind"] == WaitEnd.ENDED
    conclusion = await asyncio.to_thread(conclude, cluster.launcher(), launched.state.uid)
    assert conclusion.verdict is not None
    assert conclusion.verdict.cause is not None

    for policy in ("suspend", "delete"):
        # The ended JobSet of the holder is deleted and made anew; then a user kills the task that waits for it.
        again = await asyncio.to_thread(cluster.launcher().launch)
        trigger = TrainingTrigger(
            cluster=cluster.access("watcher").as_dict(),
            storage=cluster.storage.as_dict(),
            bucket=spec.bucket,
            run_name=spec.name,
            namespace=TEAM,
            uid=again.state.uid,
            launch=again.launch,
            deadline=time.time() + 60,
            on_kill_policy=policy,
        )
        await trigger.on_kill()
        left = cluster.admin.find(JOBSETS, spec.name, TEAM)
        if policy == "suspend":
            assert left is not None
            assert left["spec"]["suspend"] is True
            state = cluster.launcher().state()
            assert state is not None
            cluster.launcher().stop(state, "for the test")
        else:
            assert left is None or left["metadata"].get("deletionTimestamp")

    refused = [entry for entry in cluster.requests() if entry["responseStatus"]["code"] == 403]
    assert refused == []
    unused = {each for each in granted() if each[0] != "provisioner"} - used(cluster) - RARE
    assert unused == set()


def hold_for_a_sweep(cluster: Cluster) -> None:
    bucket = cluster.storage.open(cluster.spec.bucket)
    with (
        cluster.access("sweeper").open() as client,
        HeldRun(bucket, client, cluster.spec.name, "sweeper", beside_training=True) as held,
    ):
        assert held.fence() > 0


async def test_the_provisioners_rights_are_enough_and_none_is_left_unused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud_storage: Any
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_storage.address)
    await asyncio.to_thread(provision_and_upgrade, cluster, tmp_path)
    refused = [entry for entry in cluster.requests() if entry["responseStatus"]["code"] == 403]
    assert refused == []
    unused = {each for each in granted() if each[0] == "provisioner"} - used(cluster)
    assert unused == set()


def provision_and_upgrade(cluster: Cluster, folder: Path) -> None:
    """Every step inside the cluster and the whole upgrade, with the provisioner's own rights."""
    admin, spec = cluster.admin, cluster.spec
    cluster.access("provisioner")
    kubeconfig = str(cluster.directory / "provisioner.kubeconfig")
    queued = queue_by_hand(admin)
    with Site(spec.cluster_spec, folder=folder, kubeconfig=kubeconfig) as site:
        controller, classes, configurations = in_cluster_steps(site)
        assert advance(classes, Report(Mode.APPLY), print) is None
        assert [change.object for change in classes.look().changes] == []
        install_jobset(admin)
        waiting = advance(controller, Report(Mode.APPLY), print)
        assert waiting is not None
        assert "took more than" in wait_briefly(site, waiting)
        assert configurations.look().waiting is None
        cluster.add_slice(0)
        deadline = time.monotonic() + 20
        while (waiting := configurations.look().waiting) is None:
            assert time.monotonic() < deadline
        assert waiting.kind == "driver_ready"
        assert "0 of 2 nodes" in wait_briefly(site, waiting)
        assert "is served" in wait_briefly(site, kind_served())

        whole = Target.of_cluster(spec.cluster_spec)
        assert unseen_by_doctor(cluster, "provisioner", whole) == []
        launched = cluster.launcher().launch()
        cluster.add_slice(1)
        cluster.wait_until_ready(0)
        suspending, removing = before_upgrade(site, "next", unsaved=True)
        waiting = suspending.look().changes[0].act()
        assert waiting is not None and waiting.kind == "run_saved"
        wait_briefly(site, waiting)
        bucket = cluster.storage.open(spec.bucket)
        bucket.write_text(f"{spec.name}/checkpoints/7/commit_success.txt", "", generation=None)
        answered = {"save_answered": waiting.arguments["request"], "save_step": 7}
        bucket.write(f"{spec.name}/everstep/status.json", answered, generation=None)
        actions = [change.action for change in suspending.look().changes]
        assert actions == ["suspend", "suspend"]
        for change in suspending.look().changes:
            change.act()
        assert admin.get(JOBSETS, spec.name, TEAM)["spec"]["suspend"] is True
        assert admin.get(WORKLOADS, queued, TEAM)["spec"]["active"] is False
        admin.delete(JOBSETS, queued, TEAM)
        selector = admin.get(CHECKPOINT_CONFIGURATIONS, "everstep")["spec"]["nodeSelector"]
        deadline = time.monotonic() + 60
        while users.live(Reader(site), selector):
            assert time.monotonic() < deadline
            time.sleep(0.3)
        waiting = removing.look().changes[0].act()
        assert waiting is not None and waiting.kind == "configuration_gone"
        for driver in admin.list_all(DAEMON_SETS, CHECKPOINTING_NAMESPACE):
            admin.delete(DAEMON_SETS, driver["metadata"]["name"], CHECKPOINTING_NAMESPACE)
        assert "the RAM is free" in wait_briefly(site, waiting, seconds=20)
        making, resuming = after_upgrade(site, "next")
        waiting = making.look().changes[0].act()
        assert waiting is not None
        assert "has not made DaemonSet" in wait_briefly(site, waiting)
        (resumption,) = (change for change in resuming.look().changes if spec.name in change.object)
        resumption.act()
        assert admin.get(JOBSETS, spec.name, TEAM)["spec"]["suspend"] is False
        assert launched.state.uid == admin.get(JOBSETS, spec.name, TEAM)["metadata"]["uid"]


def wait_briefly(site: Site, waiting: Waiting, *, seconds: float = 4) -> str:
    """How a wait ends, or how things stand after some seconds."""
    module, _, name = KINDS[waiting.kind].partition(":")
    wait = getattr(importlib.import_module(module), name)({**waiting.arguments, "poll": 0.3}, site.access())

    async def look() -> str:
        try:
            async with asyncio.timeout(seconds):
                return str(await wait.outcome())
        except TimeoutError:
            return f"took more than {seconds} s: {wait.standing}"

    return asyncio.run(look())


def install_jobset(admin: KubernetesClient) -> None:
    """A Deployment as JobSet's manifest has it; nobody runs it."""
    container = {"name": "manager", "image": "registry.k8s.io/jobset/jobset:v0.11.1"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    body = {"metadata": {"name": "jobset-controller-manager"}, "apiVersion": "apps/v1", "kind": "Deployment"}
    if admin.find(NAMESPACES, "jobset-system") is None:
        admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}})
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    if admin.find(DEPLOYMENTS, "jobset-controller-manager", "jobset-system") is None:
        admin.create(DEPLOYMENTS, {**body, "spec": spec}, "jobset-system")


def unseen_by_doctor(cluster: Cluster, identity: str, target: Target) -> list[str]:
    """What an identity's doctor could not look at in the cluster, except for logs: no kubelet is there to give them."""
    driver = {"name": "replication-worker", "image": "none"}
    labels = {"k8s-app": "high-scale-checkpointing"}
    (configuration,) = cluster.admin.list_all(CHECKPOINT_CONFIGURATIONS)
    # An owner of its own keeps the DaemonSet's controller from taking it over.
    owner = {"apiVersion": "checkpointing.gke.io/v1", "kind": "CheckpointConfiguration", "controller": True}
    owner |= {"name": configuration["metadata"]["name"], "uid": configuration["metadata"]["uid"]}
    metadata = {"name": f"driver-{identity}", "labels": labels, "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    # On a node, so that nobody schedules it, and running, so that its log is asked for.
    body = {**pod, "spec": {"nodeName": "node-0-0", "containers": [driver]}}
    cluster.admin.create(PODS, body, CHECKPOINTING_NAMESPACE)
    state = {"name": "replication-worker", "state": {"running": {}}, "image": "none", "imageID": "none"}
    state |= {"ready": False, "restartCount": 0}
    cluster.admin._request(
        "PATCH",
        PODS.path(CHECKPOINTING_NAMESPACE, f"driver-{identity}", "status"),
        body={"status": {"phase": "Running", "containerStatuses": [state]}},
        content_type="application/merge-patch+json",
    )
    with opened(cluster.access(identity), cluster.storage, None, patience=1) as sources:
        evidence = gather(target, sources)
    cluster.admin.delete(PODS, f"driver-{identity}", CHECKPOINTING_NAMESPACE)
    assert "no way to Google Cloud" in evidence.unread.pop("cluster")
    return [f"{kind}: {why}" for kind, why in evidence.unread.items() if not kind.startswith("log of ")]


def local_queue(admin: KubernetesClient) -> str:
    """A queue as Kueue has it."""
    define_kueue(admin, "LocalQueue", "localqueues")
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "main"}}
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create(LOCAL_QUEUES, {**queue, "spec": {"clusterQueue": "all"}}, TEAM)
            return "main"
        except NotFound:
            # A new kind is served a moment after it was defined.
            assert time.monotonic() < deadline
            time.sleep(0.2)


def define_kueue(admin: KubernetesClient, kind: str, plural: str) -> None:
    """A kind of Kueue's, without its schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "kueue.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]}
    metadata = {"name": f"{plural}.kueue.x-k8s.io"}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
    admin.create(CUSTOM_RESOURCE_DEFINITIONS, {**body, "spec": spec})


def queue_by_hand(admin: KubernetesClient) -> str:
    """A JobSet that a queue rules, and its Workload as Kueue makes it."""
    define_kueue(admin, "Workload", "workloads")
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"node.kubernetes.io/instance-type": "ct6e-standard-4t"},
        "containers": [{"name": "other", "image": "none"}],
        "volumes": [{"name": "checkpoint", "csi": {"driver": "multitier-checkpoint.csi.storage.gke.io"}}],
    }
    job = {"name": "slice", "template": {"spec": {"template": {"spec": pod}}}}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "queued", "labels": labels},
    }
    made = admin.create(JOBSETS, {**body, "spec": {"replicatedJobs": [job]}}, TEAM)
    owner = {"apiVersion": made["apiVersion"], "kind": "JobSet", "name": "queued", "uid": made["metadata"]["uid"]}
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {"active": True}}
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create(WORKLOADS, {**workload, "metadata": {"name": "queued", "ownerReferences": [owner]}}, TEAM)
            return "queued"
        except NotFound:
            # A new kind is served a moment after it was defined.
            assert time.monotonic() < deadline
            time.sleep(0.2)


# A run that is lost on more hosts than a few makes the wait list nodes instead of reading each.
RARE = {("watcher", "list", "nodes", "")}


def granted() -> set[Use]:
    """Every single right of every identity."""
    found = set()
    for identity in IDENTITIES.values():
        places = {"": identity.anywhere, TEAM: identity.own, **identity.elsewhere}
        for where, rules in places.items():
            for rule in rules:
                found |= {(identity.name, verb, rule.resource.plural, where) for verb in rule.verbs}
    return found


def used(cluster: Cluster) -> set[Use]:
    """Every right that was used, by the API server's audit log."""
    found = set()
    for entry in cluster.requests():
        identity = entry["user"]["username"].rpartition(":")[2]
        about = entry.get("objectRef") or {}
        # Requests for a namespace itself are authorized as if they were inside it.
        where = "" if about.get("resource") == "namespaces" else about.get("namespace", "")
        what = "/".join(part for part in (about.get("resource", ""), about.get("subresource", "")) if part)
        found.add((identity, entry["verb"], what, where))
    return found


def until_used(cluster: Cluster, rights: set[Use]) -> None:
    deadline = time.monotonic() + 60
    while not rights <= used(cluster):
        assert time.monotonic() < deadline, rights - used(cluster)
        time.sleep(0.2)
