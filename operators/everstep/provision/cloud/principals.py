"""Who gets access to buckets and keys, as IAM names them. Pure."""

from __future__ import annotations

import re

from everstep.clients.resources import CHECKPOINTING_NAMESPACE
from everstep.spec.cluster_names import is_project_id
from everstep.spec.findings import FindingsError, error

# The Kubernetes ServiceAccount that the checkpoint driver's pods run as (GKE documentation).
DRIVER_SERVICE_ACCOUNT = "gke-checkpointing-multitier-node"


def workload_pool(project: str) -> str:
    """Return the Workload Identity pool of a project's GKE clusters."""
    return f"{project}.svc.id.goog"


def service_account_principal(project: str, number: int | str, namespace: str, name: str) -> str:
    """Return what IAM calls a Kubernetes ServiceAccount of a project's clusters.

    Raises FindingsError when id and number of the project are swapped or wrong: IAM would take the binding, and
    access would be denied all the same.
    """
    findings = []
    if not is_project_id(project):
        findings.append(error("project", repr(project), "a project's id, such as acme-training, not its number"))
    if not re.fullmatch(r"[1-9]\d*", str(number)):
        findings.append(error("project number", repr(number), "digits: a project's number, not its id"))
    if findings:
        raise FindingsError(f"no principal can be built for {namespace}/{name}", findings)
    return spelt(project, number, namespace, name)


def spelt(project: str, number: int | str, namespace: str, name: str) -> str:
    """Return the same of parts that nobody has looked at, such as placeholders."""
    pool = f"//iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/{workload_pool(project)}"
    return f"principal:{pool}/subject/ns/{namespace}/sa/{name}"


def driver_principal(project: str, number: int | str) -> str:
    """Return what IAM calls the checkpoint driver of a project's clusters."""
    return service_account_principal(project, number, CHECKPOINTING_NAMESPACE, DRIVER_SERVICE_ACCOUNT)


def compute_default(number: int | str) -> str:
    """Return what IAM calls a project's Compute Engine default service account."""
    return f"serviceAccount:{number}-compute@developer.gserviceaccount.com"
