"""The kinds of Kubernetes objects that Everstep deals with, and their paths in the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """A kind of object: API group (empty for the core), version, plural name, and whether it lives in namespaces."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of the collection, or of one object or its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
JOBS = Resource("batch", "v1", "jobs")
PODS = Resource("", "v1", "pods")
POD_LOGS = Resource("", "v1", "pods/log")
EVENTS = Resource("", "v1", "events")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
NODES = Resource("", "v1", "nodes", namespaced=False)
DAEMON_SETS = Resource("apps", "v1", "daemonsets")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
CHECKPOINT_CONFIGURATIONS = Resource("checkpointing.gke.io", "v1", "checkpointconfigurations", namespaced=False)
CUSTOM_RESOURCE_DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
SECRETS = Resource("", "v1", "secrets")
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "localqueues")
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", namespaced=False)
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads")

CHECKPOINTING_NAMESPACE = "gke-managed-checkpointing"
# The manifest of the release that everything is tested with.
JOBSET_RELEASE = "https://github.com/kubernetes-sigs/jobset/releases/download/v0.11.1/manifests.yaml"
JOBSET_NAMESPACE = "jobset-system"
JOBSET_DEFINITION = "jobsets.jobset.x-k8s.io"
CHECKPOINT_DEFINITION = "checkpointconfigurations.checkpointing.gke.io"
