"""What each identity of Everstep may do, no more and no less: data, and the files that grant it. Pure.

Kubernetes rules are RBAC; Google Cloud's are IAM permissions, on one bucket or on the project. `/version` is open to
everybody who is logged in (the ClusterRole system:discovery), so no rule names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.clients import resources
from everstep.clients.resources import Resource

Object = dict[str, Any]

MANAGED_BY = {"app.kubernetes.io/managed-by": "everstep"}
_RBAC = "rbac.authorization.k8s.io"

# Listing a hierarchical bucket by levels shows folders that hold no object yet, which is a permission of its own.
READ_BUCKET = ("storage.objects.get", "storage.objects.list", "storage.folders.list")
# Replacing an object is a deletion too (cloud.google.com/storage/docs/access-control/iam-json).
WRITE_BUCKET = (*READ_BUCKET, "storage.objects.create", "storage.objects.delete")
# A sweep renames folders into the trash of their run, has them back, and deletes them there.
SWEEP_BUCKET = (
    *WRITE_BUCKET,
    "storage.buckets.get",
    "storage.folders.create",
    "storage.folders.delete",
    "storage.folders.get",
    "storage.folders.rename",
)
# Preparing a project changes no object in a bucket, deletes nothing but node pools, and reads no secret.
PREPARE_PROJECT = {
    "cloudkms.cryptoKeys.get": "whether a bucket's own key can encrypt; only on keys that the cluster file names",
    "cloudkms.cryptoKeys.getIamPolicy": "who may use a bucket's own key; only on keys that the cluster file names",
    "cloudkms.cryptoKeys.setIamPolicy": "let Cloud Storage use a bucket's own key; only on keys that it names",
    "compute.instanceGroupManagers.get": "how many nodes a node pool has",
    "container.clusters.create": "make the cluster",
    "container.clusters.get": "the cluster and its node pools",
    "container.clusters.list": "the versions that GKE offers",
    "container.clusters.update": "add-ons, Workload Identity, node pools, versions",
    "container.operations.get": "wait for GKE",
    "container.operations.list": "join what is under way",
    "iam.serviceAccounts.actAs": "let nodes run as their service account; only on that account",
    "resourcemanager.projects.get": "the project's number, which principals are built of",
    "serviceusage.operations.get": "wait until APIs are enabled",
    "serviceusage.services.enable": "enable APIs",
    "serviceusage.services.list": "the APIs that are enabled",
    "storage.buckets.create": "make the buckets",
    "storage.buckets.get": "location, hierarchical namespace, soft delete",
    "storage.buckets.getIamPolicy": "who may use a bucket",
    "storage.buckets.setIamPolicy": "let the driver and the runs' pods use a bucket",
    "storage.buckets.update": "soft delete and key of a bucket, where the cluster file speaks of them",
}


@dataclass(frozen=True)
class Rule:
    """Verbs on a kind of object, and what they are for. `names` narrows it to some objects."""

    resource: Resource
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def as_rbac(self) -> Object:
        """Return the rule as a Role or ClusterRole holds it."""
        rule: Object = {
            "apiGroups": [self.resource.group],
            "resources": [self.resource.plural],
            "verbs": list(self.verbs),
        }
        return {**rule, "resourceNames": list(self.names)} if self.names else rule


@dataclass(frozen=True)
class Identity:
    """One of Everstep's identities.

    :param work: who uses it and for what
    :param anywhere: rules for all namespaces and for objects without one
    :param own: rules for the namespace of the runs
    :param elsewhere: rules for namespaces of GKE and of the JobSet controller
    :param bucket: IAM permissions on the runs' bucket
    :param project: IAM permissions on the cluster's project (and on that of the buckets), and what each is for
    """

    name: str
    work: str
    anywhere: tuple[Rule, ...] = ()
    own: tuple[Rule, ...] = ()
    elsewhere: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    bucket: tuple[str, ...] = ()
    project: Mapping[str, str] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """Return the name of its roles in Kubernetes."""
        return f"everstep-{self.name}"


IDENTITIES = {
    each.name: each
    for each in (
        Identity(
            "launcher",
            "Airflow's workers: preflight, launch, verdict, gate, retention plan",
            anywhere=(
                Rule(resources.PRIORITY_CLASSES, ("get", "list"), "preflight: the run's class; a default one"),
                Rule(resources.NODES, ("list",), "preflight: whole slices of the pool"),
                Rule(resources.PODS, ("list",), "preflight: who would give up a slice, in all namespaces"),
                Rule(
                    resources.CHECKPOINT_CONFIGURATIONS,
                    ("get", "list"),
                    "preflight: bucket and size of the RAM disks; doctor: conflicts, stuck deletions",
                ),
                Rule(resources.NAMESPACES, ("get",), "the lease: which cluster this is", names=("kube-system",)),
                Rule(
                    resources.CUSTOM_RESOURCE_DEFINITIONS,
                    ("get",),
                    "preflight and doctor: whether JobSet and the checkpointing add-on are installed",
                    names=(resources.JOBSET_DEFINITION, resources.CHECKPOINT_DEFINITION),
                ),
                Rule(resources.CLUSTER_QUEUES, ("get",), "doctor: whether Kueue admits anything"),
            ),
            own=(
                Rule(
                    resources.JOBSETS,
                    ("get", "create", "patch", "delete"),
                    "launch: attach or create; suspend a run that gets nowhere; replace one that has ended",
                ),
                Rule(resources.PODS, ("list",), "verdict: exit codes of failed pods"),
                Rule(resources.SERVICE_ACCOUNTS, ("get",), "preflight and doctor: the pods' service account"),
                Rule(resources.LOCAL_QUEUES, ("get",), "preflight: the queue, where Kueue rules"),
                Rule(resources.RESOURCE_QUOTAS, ("list",), "preflight: room for the run's pods"),
                Rule(resources.JOBS, ("list",), "doctor: what a deletion waits for"),
                Rule(resources.EVENTS, ("list",), "doctor: refusals of pods, mounts that fail"),
                Rule(resources.POD_LOGS, ("get",), "doctor: last words of failed pods"),
                Rule(resources.WORKLOADS, ("list",), "doctor: what Kueue's admission waits for"),
            ),
            elsewhere={
                resources.CHECKPOINTING_NAMESPACE: (
                    Rule(
                        resources.DAEMON_SETS, ("get", "list"), "preflight and doctor: where the checkpoint driver is"
                    ),
                    Rule(resources.EVENTS, ("list",), "doctor: why a driver is not ready"),
                    Rule(resources.POD_LOGS, ("get",), "doctor: what the replicator says"),
                ),
                "default": (Rule(resources.EVENTS, ("list",), "doctor: conflicts of configurations"),),
                "jobset-system": (Rule(resources.DEPLOYMENTS, ("list",), "preflight: JobSet's version"),),
            },
            # The policy tells preflight and doctor whether the run's pods and the driver may use the bucket.
            bucket=("storage.buckets.get", "storage.buckets.getIamPolicy", *WRITE_BUCKET),
        ),
        Identity(
            "watcher",
            "Airflow's triggerers: waits, sensors, and what a user's kill does to a JobSet",
            anywhere=(Rule(resources.NODES, ("get", "list"), "why a slice was lost"),),
            own=(
                Rule(resources.JOBSETS, ("list", "watch"), "the one watch that all waits share"),
                Rule(resources.JOBSETS, ("get", "patch", "delete"), "recovery.on_kill: suspend or delete"),
                Rule(resources.PODS, ("list",), "failed pods of a restart; pods that don't start"),
                Rule(resources.EVENTS, ("list",), "refusals to make pods"),
            ),
            bucket=READ_BUCKET,
        ),
        Identity(
            "provisioner",
            "what prepares, upgrades and clears clusters; installing JobSet from a manifest takes an administrator",
            anywhere=(
                Rule(
                    resources.CUSTOM_RESOURCE_DEFINITIONS,
                    ("get",),
                    "whether JobSet and the checkpointing add-on are installed",
                    names=(resources.JOBSET_DEFINITION, resources.CHECKPOINT_DEFINITION),
                ),
                Rule(resources.PRIORITY_CLASSES, ("list", "create"), "classes of the cluster file; a default one"),
                Rule(
                    resources.CHECKPOINT_CONFIGURATIONS,
                    ("get", "list", "create", "delete"),
                    "configurations of the cluster file, and others that overlap with them",
                ),
                Rule(resources.NODES, ("list",), "nodes that a configuration selects, and their memory"),
                Rule(resources.PODS, ("list",), "drivers on each node, and who uses them in any namespace"),
                Rule(resources.JOBSETS, ("list",), "runs on a driver, in any namespace"),
            ),
            own=(
                Rule(resources.JOBSETS, ("get", "patch"), "upgrade: suspend and resume runs"),
                Rule(resources.PODS, ("patch",), "upgrade: ask a run for a durable save"),
                Rule(resources.WORKLOADS, ("list", "patch"), "upgrade: suspend and resume runs where Kueue rules"),
            ),
            elsewhere={
                resources.CHECKPOINTING_NAMESPACE: (
                    Rule(
                        resources.DAEMON_SETS,
                        ("get", "list"),
                        "the driver of a configuration; doctor: nodes without one",
                    ),
                    Rule(resources.EVENTS, ("list",), "why a driver is not ready"),
                    Rule(resources.POD_LOGS, ("get",), "doctor: what the replicator says when a wait fails"),
                ),
                "default": (Rule(resources.EVENTS, ("list",), "conflicts of configurations"),),
                resources.JOBSET_NAMESPACE: (
                    Rule(resources.DEPLOYMENTS, ("get", "list", "patch"), "JobSet's version and resources"),
                ),
            },
            project=PREPARE_PROJECT,
        ),
        Identity(
            "sweeper",
            "retention: plans, sweeps, emptied trash, what is had back",
            anywhere=(
                Rule(resources.NAMESPACES, ("get",), "the lease: which cluster this is", names=("kube-system",)),
            ),
            own=(Rule(resources.JOBSETS, ("get",), "the lease: whether the run's training lives"),),
            bucket=SWEEP_BUCKET,
        ),
        Identity(
            "trainer",
            "training pods: reports and durable saves in the run's folder",
            bucket=WRITE_BUCKET,
        ),
    )
}


def roles(identity: Identity, *, namespace: str) -> Iterator[tuple[str | None, tuple[Rule, ...]]]:
    """Yield where the identity has rules, None for everywhere, and those rules.

    :param namespace: of the runs
    """
    if identity.anywhere:
        yield None, identity.anywhere
    places = {**identity.elsewhere, namespace: (*identity.own, *identity.elsewhere.get(namespace, ()))}
    for place, rules in places.items():
        if rules:
            yield place, rules


def iam_role(identity: Identity) -> Object | None:
    """Return the custom IAM role as `gcloud iam roles create --file` reads it; None if it needs none.

    It is granted on the runs' bucket, or on the project where the identity has rights on one.
    """
    permissions = {*identity.bucket, *identity.project}
    if not permissions:
        return None
    return {
        "title": f"Everstep {identity.name}",
        "description": f"For {identity.work}",
        "stage": "GA",
        "includedPermissions": sorted(permissions),
    }


def user_subject(name: str) -> Object:
    """Return the subject of a user. For GKE a Google service account is a user, named by its e-mail address."""
    return {"apiGroup": _RBAC, "kind": "User", "name": name}


def service_account_subject(namespace: str, name: str) -> Object:
    """Return the subject of a Kubernetes service account."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def granted(
    identity: Identity, place: str | None, rules: Iterable[Rule], subject: Mapping[str, Any]
) -> tuple[Object, Object]:
    """Return the role with some rules, and the binding that gives it to a subject.

    :param place: a namespace; None makes a ClusterRole
    """
    kind, within = ("Role", {"namespace": place}) if place else ("ClusterRole", {})
    metadata = {"name": identity.role, **within, "labels": MANAGED_BY}
    role: Object = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata}
    binding: Object = {"apiVersion": f"{_RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": identity.role}
    return (
        {**role, "rules": [rule.as_rbac() for rule in rules]},
        {**binding, "roleRef": reference, "subjects": [dict(subject)]},
    )
