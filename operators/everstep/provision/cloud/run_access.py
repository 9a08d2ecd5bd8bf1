"""Whether a run's pods may write to the run's folder, as far as a bucket's policy tells. Pure.

Provisioning lets the pods of each run that has a file into that run's folder, and nowhere else. What a policy may mean
to give by itself (custom roles, conditions of somebody else's, sets of pods) counts as given: a false alarm is worse
than none. A role on the project, or a Google service account that stands in for the pods', is not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.provision.cloud import gcloud, principals
from everstep.provision.cloud.policies import (
    OBJECT_USER,
    OBJECT_VIEWER,
    Grant,
    Policy,
    missing,
    run_folders,
    run_reading,
)

# Roles that let pods list, read, write and delete objects.
SUFFICIENT = frozenset({OBJECT_USER, "roles/storage.objectAdmin", "roles/storage.admin"})
# A Kubernetes ServiceAccount with it acts as a Google service account (GKE, Workload Identity Federation).
STANDS_IN = "iam.gke.io/gcp-service-account"
NUMBER_UNKNOWN = "PROJECT_NUMBER"

_PREFIX = re.compile(r'/objects/([^"\']*)["\']')
_POOL = re.compile(
    r"principal(?:Set)?://iam\.googleapis\.com/projects/(?P<number>[1-9]\d*)/locations/global/workloadIdentityPools/"
    r"(?P<project>[^/]+)\.svc\.id\.goog/(?P<who>.+)"
)


@dataclass(frozen=True)
class Pods:
    """A run's pods, by what IAM knows of them.

    :param number: of the cluster's project; empty when it is not known, and then taken from the policy
    """

    project: str
    cluster: str
    namespace: str
    account: str
    number: str = ""

    def principal(self, policy: Mapping[str, object]) -> str:
        """Return what IAM calls them, with a placeholder for a number that neither we nor the policy know."""
        number = self.number or next((found for found, _ in self._ours(policy)), NUMBER_UNKNOWN)
        return principals.spelt(self.project, number, self.namespace, self.account)

    def are(self, member: str) -> bool:
        """Say whether a member of a binding is, or may be, these pods."""
        if member in ("allUsers", "allAuthenticatedUsers"):
            return True
        found = _POOL.fullmatch(member)
        if found is None or found["project"] != self.project or self.number not in ("", found["number"]):
            return False
        kind, _, which = found["who"].partition("/")
        if kind == "subject":
            return which == f"ns/{self.namespace}/sa/{self.account}"
        if kind == "namespace":
            return which == self.namespace
        if kind == "kubernetes.cluster":
            return not self.cluster or which.endswith(f"/clusters/{self.cluster}")
        return True

    def _ours(self, policy: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """Yield number and name of the members of our project's pool."""
        for binding in _bindings(policy):
            for member in binding.get("members") or ():
                found = _POOL.fullmatch(str(member))
                if found is not None and found["project"] == self.project:
                    yield found["number"], str(member)


def acts_as_another(service_account: Mapping[str, Any] | None) -> bool:
    """Say whether pods with a Kubernetes ServiceAccount have another name in policies than their own."""
    return STANDS_IN in (((service_account or {}).get("metadata") or {}).get("annotations") or {})


def run_grants(bucket: str, run: str, principal: str) -> tuple[Grant, Grant]:
    """Return what a run's pods need on its bucket: to write reports and durable saves, and to read the whole folder."""
    return (
        Grant(OBJECT_USER, principal, run_folders(bucket, run)),
        Grant(OBJECT_VIEWER, principal, run_reading(bucket, run)),
    )


def lacking(policy: Policy, pods: Pods, bucket: str, run: str) -> tuple[Grant, ...]:
    """Return the grants of a run that a policy lacks; nothing when something in it lets the run's pods write there."""
    if any(_covers(binding, pods, run) for binding in _bindings(policy)):
        return ()
    return missing(policy, run_grants(bucket, run, pods.principal(policy)))


def is_by_run(policy: Policy) -> bool:
    """Say whether a policy lets pods into folders one by one, as provisioning does: who is left out has no access."""
    return any(
        _prefixes(binding) and any(_POOL.fullmatch(str(member)) for member in binding.get("members") or ())
        for binding in _bindings(policy)
    )


def remedies(bucket: str, run: str, grants: tuple[Grant, ...]) -> tuple[str, ...]:
    """Return what gives a run's pods access: for good by its own file, or at once by hand."""
    return (
        f"put runs/{run}.yaml with name: {run} beside the folder of the cluster file, then: everstep provision "
        "CLUSTER_FILE --mode apply",
        *(gcloud.grant_on_bucket(bucket, grant) for grant in grants),
    )


def _covers(binding: Policy, pods: Pods, run: str) -> bool:
    role = str(binding.get("role"))
    if role.startswith("roles/") and role not in SUFFICIENT:
        return False
    if not any(pods.are(str(member)) for member in binding.get("members") or ()):
        return False
    prefixes, folder = _prefixes(binding), f"{run}/"
    return not prefixes or any(each.startswith(folder) or folder.startswith(each) for each in prefixes)


def _prefixes(binding: Policy) -> list[str]:
    """Return the beginnings of objects' names that a binding's condition speaks of."""
    return _PREFIX.findall(str((binding.get("condition") or {}).get("expression") or ""))


def _bindings(policy: Mapping[str, object]) -> list[Policy]:
    found = policy.get("bindings")
    return list(found) if isinstance(found, list | tuple) else []
