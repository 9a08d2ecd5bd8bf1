"""Names of labels and annotations, and of the objects that a JobSet makes."""

from __future__ import annotations

import hashlib

from everstep_sandbox.kubernetes.objects import Object

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
GLOBAL_REPLICAS = "jobset.sigs.k8s.io/global-replicas"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX = "jobset.sigs.k8s.io/job-global-index"
JOB_GROUP_INDEX = "jobset.sigs.k8s.io/job-group-index"
GROUP_NAME = "jobset.sigs.k8s.io/group-name"
GROUP_REPLICAS = "jobset.sigs.k8s.io/group-replicas"
JOB_KEY = "jobset.sigs.k8s.io/job-key"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT = "jobset.sigs.k8s.io/job-restart-attempt"
PRIORITY = "jobset.sigs.k8s.io/priority"
COORDINATOR = "jobset.sigs.k8s.io/coordinator"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"

API_VERSION = "jobset.x-k8s.io/v1alpha2"


def job_name(jobset: Object, replicated_job: Object, index: int) -> str:
    return f"{jobset['metadata']['name']}-{replicated_job['name']}-{index}"


def job_key(namespace: str, name: str) -> str:
    """The value of JOB_KEY; only its uniqueness matters."""
    return hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def subdomain(jobset: Object) -> str:
    """The name of the headless service and the domain of the pods' names."""
    return str((jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"])


def dns_is_enabled(jobset: Object) -> bool:
    return bool((jobset["spec"].get("network") or {}).get("enableDNSHostnames", True))


def coordinator_endpoint(jobset: Object) -> str | None:
    """DNS name of the coordinator pod, where the set names one."""
    wanted = jobset["spec"].get("coordinator")
    if not wanted:
        return None
    indexes = f"{wanted.get('jobIndex', 0)}-{wanted.get('podIndex', 0)}"
    return f"{jobset['metadata']['name']}-{wanted['replicatedJob']}-{indexes}.{subdomain(jobset)}"


def owner_reference(jobset: Object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "name": jobset["metadata"]["name"],
        "uid": jobset["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
