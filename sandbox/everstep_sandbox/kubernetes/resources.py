"""The kinds that the API serves. A plural names a kind everywhere in the sandbox, since no two groups share one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object: where it is served, and what the API does with it."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    custom: bool = False
    """Defined by a CustomResourceDefinition: no strategic merge patch."""
    create_only: bool = False
    """A request without a stored object, such as a SelfSubjectAccessReview."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`jobsets.jobset.x-k8s.io`; the plural alone in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


_STATUS = ("status",)
_CLUSTER = False

RESOURCES: tuple[Resource, ...] = (
    Resource("bindings", "Binding", create_only=True),
    Resource("configmaps", "ConfigMap", short_names=("cm",)),
    Resource("endpoints", "Endpoints", short_names=("ep",)),
    Resource("events", "Event", short_names=("ev",)),
    Resource("limitranges", "LimitRange", short_names=("limits",)),
    Resource("namespaces", "Namespace", namespaced=_CLUSTER, short_names=("ns",), subresources=_STATUS),
    Resource("nodes", "Node", namespaced=_CLUSTER, short_names=("no",), subresources=_STATUS),
    Resource("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS),
    Resource(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction", "log"),
    ),
    Resource("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS),
    Resource("secrets", "Secret"),
    Resource("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    Resource("services", "Service", short_names=("svc",), categories=("all",), subresources=_STATUS),
    Resource(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        namespaced=_CLUSTER,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
    Resource("daemonsets", "DaemonSet", "apps", short_names=("ds",), categories=("all",), subresources=_STATUS),
    Resource("deployments", "Deployment", "apps", short_names=("deploy",), categories=("all",), subresources=_STATUS),
    Resource("replicasets", "ReplicaSet", "apps", short_names=("rs",), categories=("all",), subresources=_STATUS),
    Resource("statefulsets", "StatefulSet", "apps", short_names=("sts",), categories=("all",), subresources=_STATUS),
    Resource("selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io", namespaced=_CLUSTER, create_only=True),
    Resource(
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        "authorization.k8s.io",
        namespaced=_CLUSTER,
        create_only=True,
    ),
    Resource(
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        "authorization.k8s.io",
        namespaced=_CLUSTER,
        create_only=True,
    ),
    Resource("jobs", "Job", "batch", categories=("all",), subresources=_STATUS),
    Resource(
        "checkpointconfigurations",
        "CheckpointConfiguration",
        "checkpointing.gke.io",
        namespaced=_CLUSTER,
        short_names=("cpc",),
        subresources=_STATUS,
        custom=True,
    ),
    Resource(
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        namespaced=_CLUSTER,
    ),
    Resource(
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        namespaced=_CLUSTER,
    ),
    Resource("leases", "Lease", "coordination.k8s.io"),
    Resource("jobsets", "JobSet", "jobset.x-k8s.io", "v1alpha2", subresources=_STATUS, custom=True),
    Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", short_names=("pdb",), subresources=_STATUS),
    Resource("clusterroles", "ClusterRole", "rbac.authorization.k8s.io", namespaced=_CLUSTER),
    Resource("clusterrolebindings", "ClusterRoleBinding", "rbac.authorization.k8s.io", namespaced=_CLUSTER),
    Resource("roles", "Role", "rbac.authorization.k8s.io"),
    Resource("rolebindings", "RoleBinding", "rbac.authorization.k8s.io"),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=_CLUSTER, short_names=("pc",)),
    Resource("csidrivers", "CSIDriver", "storage.k8s.io", namespaced=_CLUSTER),
)

BY_PLURAL: dict[str, Resource] = {resource.plural: resource for resource in RESOURCES}
_BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
_BY_KIND = {(resource.api_version, resource.kind): resource for resource in RESOURCES}


_undefined: set[str] = set()
"""Plurals of custom resources that have no definition now: they are not served. The process has one store."""


def set_defined(plural: str, *, defined: bool) -> None:
    """Serves a custom resource from now on, or no longer."""
    (_undefined.discard if defined else _undefined.add)(plural)


def all_served() -> list[Resource]:
    """The resources that the API serves now."""
    return [resource for resource in RESOURCES if resource.plural not in _undefined]


def served(group: str, version: str, plural: str) -> Resource | None:
    """The resource at /apis/<group>/<version>/…/<plural> (group "" is /api/<version>)."""
    return None if plural in _undefined else _BY_PATH.get((group, version, plural))


def of_kind(api_version: str, kind: str) -> Resource | None:
    return _BY_KIND.get((api_version, kind))


def group_versions() -> list[tuple[str, str]]:
    """All served (group, version) pairs, core first, in a stable order."""
    return sorted({(resource.group, resource.version) for resource in all_served()})
