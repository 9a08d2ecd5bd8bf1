"""Buckets: made as backups need them; an existing one is changed only where the cluster file says something of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from everstep.clients.errors import Forbidden
from everstep.clients.google_requests import SERVICE_DISABLED
from everstep.provision.changes import Change, Look
from everstep.provision.cloud import bodies, checks, gcloud, terraform
from everstep.spec.findings import Finding, error, note, warning

if TYPE_CHECKING:
    from everstep.provision.site import Site

Object = dict[str, Any]

RENAMES = (
    "a hierarchical namespace, which the replicator's atomic renames need and which can't be turned on later: "
    "name another bucket"
)


@dataclass(frozen=True)
class BucketsStep:
    """The buckets of the checkpoint configurations, and the one for scratch files."""

    site: Site
    title: str = "buckets"

    def look(self) -> Look:
        """Return which are missing and what differs."""
        findings: list[Finding] = []
        changes: list[Change] = []
        for name in checks.bucket_names(self.site.spec):
            try:
                found = self.site.google().bucket(name)
            except Forbidden as refusal:
                if refusal.reason != SERVICE_DISABLED:
                    findings.append(_taken(name, refusal))
                    continue
                found = None
            if found is None:
                findings += self._findings_of_new(name)
                changes.append(self._create(name))
            else:
                findings += self._findings(name, found)
                changes += self._changes(name, found)
        return Look(tuple(findings), tuple(changes))

    def _create(self, name: str) -> Change:
        google, spec = self.site.google(), self.site.spec
        project, location = checks.bucket_project(spec, name), checks.bucket_location(spec, name)
        hierarchical, bucket = checks.is_for_backups(spec, name), spec.bucket(name)

        def act() -> None:
            google.create_bucket(project, bodies.bucket(name, bucket, location, hierarchical=hierarchical))

        kind = "hierarchical namespace" if hierarchical else "flat: scratch files of Pathways are never renamed"
        return Change(
            object=f"bucket {name}",
            action="create",
            found="none",
            wanted=f"in {location}, {kind}, uniform access, not public",
            act=act,
            commands=(gcloud.create_bucket(name, project, location, bucket, hierarchical=hierarchical),),
            terraform=terraform.bucket(name, project, location, bucket, hierarchical=hierarchical),
            note=checks.cost_of_soft_delete(bucket.soft_delete_days),
        )

    def _findings_of_new(self, name: str) -> Iterator[Finding]:
        location, region = checks.bucket_location(self.site.spec, name), self.site.spec.region
        if not checks.is_near(location, region):
            yield error(f"bucket {name}", f"location {location} for a cluster in {region}", checks.EGRESS)

    def _findings(self, name: str, found: Object) -> Iterator[Finding]:
        spec, where = self.site.spec, f"bucket {name}"
        owner = int(found.get("projectNumber") or 0)
        project = checks.bucket_project(spec, name)
        if owner and owner != self.site.google().project_number(project):
            yield error(
                where,
                f"it belongs to project number {owner}",
                f"one of project {project}",
                f"if that is meant: buckets.{name}.project in the cluster file",
            )
        if checks.is_for_backups(spec, name) and not (found.get("hierarchicalNamespace") or {}).get("enabled"):
            yield error(where, "it has no hierarchical namespace", RENAMES)
        location, data_locations = checks.location_of(found)
        wanted = spec.bucket(name).location
        if wanted and wanted.lower() != location:
            yield error(where, f"location {location}", f"{wanted.lower()}; a bucket can't be moved")
        elif not checks.is_near(location, spec.region, data_locations):
            yield warning(where, f"location {location} for a cluster in {spec.region}", checks.EGRESS)
        access = found.get("iamConfiguration") or {}
        if not (access.get("uniformBucketLevelAccess") or {}).get("enabled"):
            yield warning(
                where,
                "access by lists on single objects",
                "uniform access: otherwise grants with conditions are refused",
                gcloud.command("storage", "buckets", "update", f"gs://{name}", uniform_bucket_level_access=True),
            )
        yield from _deleting_rules(where, name, found)
        if access.get("publicAccessPrevention") != "enforced":
            yield note(
                where,
                "nothing prevents that its objects are made public",
                "public access prevention",
                gcloud.command("storage", "buckets", "update", f"gs://{name}", public_access_prevention=True),
            )
        if not self._is_said(name, "soft_delete_days") and (days := checks.soft_delete_days(found)):
            yield note(
                where,
                checks.cost_of_soft_delete(days),
                "off, where retention keeps its own trash",
                f"buckets.{name}.soft_delete_days in the cluster file, which then decides",
            )

    def _changes(self, name: str, found: Object) -> Iterator[Change]:
        bucket = self.site.spec.bucket(name)
        days = checks.soft_delete_days(found)
        if self._is_said(name, "soft_delete_days") and days != bucket.soft_delete_days:
            yield self._patch(
                name,
                found,
                {"softDeletePolicy": bodies.soft_delete(bucket.soft_delete_days)},
                (f"soft delete {days} days", f"{bucket.soft_delete_days} days"),
                gcloud.soft_delete(name, bucket.soft_delete_days),
                checks.cost_of_soft_delete(bucket.soft_delete_days),
            )
        key = (found.get("encryption") or {}).get("defaultKmsKeyName")
        if bucket.kms_key and key != bucket.kms_key:
            yield self._patch(
                name,
                found,
                {"encryption": {"defaultKmsKeyName": bucket.kms_key}},
                (f"default key {key or 'of Google'}", bucket.kms_key),
                gcloud.default_key(name, bucket.kms_key),
                "objects that exist keep the key that they were written with",
            )

    def _patch(
        self, name: str, found: Object, patch: Object, values: tuple[str, str], command: str, note: str
    ) -> Change:
        google, spec = self.site.google(), self.site.spec

        def act() -> None:
            google.patch_bucket(name, patch, metageneration=int(found["metageneration"]))

        return Change(
            object=f"bucket {name}",
            action="update",
            found=values[0],
            wanted=values[1],
            act=act,
            commands=(command,),
            terraform=terraform.bucket(
                name,
                checks.bucket_project(spec, name),
                checks.location_of(found)[0],
                spec.bucket(name),
                hierarchical=checks.is_for_backups(spec, name),
                exists=True,
            ),
            note=note,
        )

    def _is_said(self, name: str, field: str) -> bool:
        """Say whether the cluster file itself has a word on a field of a bucket; a default changes no old bucket."""
        bucket = self.site.spec.buckets.get(name)
        return bucket is not None and field in bucket.model_fields_set


def _deleting_rules(where: str, name: str, found: Object) -> Iterator[Finding]:
    """Return what in a bucket deletes, or keeps from being deleted, behind the back of retention and replicator."""
    for rule in (found.get("lifecycle") or {}).get("rule") or ():
        condition = rule.get("condition") or {}
        of_old_versions = condition.get("isLive") is False or condition.get("numNewerVersions")
        if (rule.get("action") or {}).get("type") == "Delete" and not of_old_versions:
            said = ", ".join(f"{key} {value}" for key, value in sorted(condition.items())) or "always"
            yield warning(
                where,
                f"a lifecycle rule deletes objects ({said}): a backup that lost some of its data still counts as "
                "complete for the replicator",
                "no such rule on backups: retention takes whole ones, and never the last good one",
                gcloud.command("storage", "buckets", "update", f"gs://{name}", clear_lifecycle=True),
            )
    kept = timedelta(seconds=int((found.get("retentionPolicy") or {}).get("retentionPeriod") or 0))
    if kept:
        yield warning(
            where,
            f"its retention policy keeps every object for {kept}: until then none can be renamed or deleted",
            "no retention policy: the replicator renames what it writes, and sweeps delete",
            gcloud.command("storage", "buckets", "update", f"gs://{name}", clear_retention_period=True),
        )


def _taken(name: str, refusal: Forbidden) -> Finding:
    return error(
        f"bucket {name}",
        f"it exists and may not be seen: {refusal.message}",
        "a bucket of your own: names are taken in the whole world",
        "name another bucket, or have its owner grant storage.buckets.get on it",
    )
