"""Enabled APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everstep.clients.errors import Forbidden
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.cloud import checks, gcloud, terraform
from everstep.spec.findings import Finding, note

if TYPE_CHECKING:
    from everstep.provision.site import Site
    from everstep.spec.cluster import ClusterSpec

CLUSTER_SERVICES = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "storage.googleapis.com",
)
ENABLING_SECONDS = 10 * 60.0


@dataclass(frozen=True)
class InputStep:
    """The cluster file itself: mistakes that can be known before anything is asked or made."""

    site: Site
    title: str = "cluster file"

    def look(self) -> Look:
        """Return the mistakes."""
        return Look(tuple(checks.cloud_findings(self.site.spec)))


@dataclass(frozen=True)
class ApisStep:
    """The APIs that cluster, buckets and keys need, in the projects where they are."""

    site: Site
    title: str = "APIs"

    def look(self) -> Look:
        """Return what is not enabled yet."""
        findings: list[Finding] = []
        changes = []
        for project, services in wanted_services(self.site.spec).items():
            try:
                missing = sorted(services - self.site.google().enabled_services(project))
            except Forbidden as refusal:
                if project == self.site.spec.project:
                    raise
                findings.append(note(f"project {project}", refusal.message, f"{', '.join(sorted(services))} enabled"))
                continue
            if missing:
                changes.append(self._enable(project, missing))
        return Look(tuple(findings), tuple(changes))

    def _enable(self, project: str, missing: list[str]) -> Change:
        def act() -> Waiting | None:
            operation = self.site.google().enable_services(project, missing)
            if operation.get("done"):
                return None
            arguments = {"service": "serviceusage", "name": operation["name"]}
            return Waiting("operation", arguments, f"APIs of project {project}", ENABLING_SECONDS)

        return Change(
            object=f"APIs of project {project}",
            action="enable",
            found=f"{', '.join(missing)} not enabled",
            wanted="enabled",
            act=act,
            commands=(gcloud.enable_services(project, missing),),
            terraform=terraform.services(project, missing),
        )


def wanted_services(spec: ClusterSpec) -> dict[str, set[str]]:
    """Return the APIs that have to be enabled, by project; the cluster's project first."""
    wanted: dict[str, set[str]] = {spec.project: set(CLUSTER_SERVICES)}
    for name in checks.bucket_names(spec):
        wanted.setdefault(checks.bucket_project(spec, name), set()).add("storage.googleapis.com")
        if key := spec.bucket(name).kms_key:
            wanted.setdefault(key.split("/")[1], set()).add("cloudkms.googleapis.com")
    return wanted
