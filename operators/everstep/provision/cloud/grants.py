"""Who may use buckets and keys: roles that are missing are added, everything else in the policies stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everstep.clients.errors import Forbidden, NotFound
from everstep.clients.google_requests import SERVICE_DISABLED
from everstep.provision.changes import Change, Look
from everstep.provision.cloud import checks, gcloud, principals, terraform
from everstep.provision.cloud.policies import (
    CONDITIONS_AT_MOST,
    ENCRYPTER_DECRYPTER,
    OBJECT_USER,
    OBJECT_VIEWER,
    Grant,
    Policy,
    conditions_of,
    make_grants,
    missing,
)
from everstep.provision.cloud.run_access import run_grants
from everstep.provision.cloud.under_way import cluster_of
from everstep.spec.findings import Finding, error

if TYPE_CHECKING:
    from everstep.provision.site import Site


@dataclass(frozen=True)
class BucketAccessStep:
    """Access to the buckets: the checkpoint driver's, the runs' own pods', the Compute Engine default account's."""

    site: Site
    title: str = "access to buckets"

    def look(self) -> Look:
        """Return which grants are missing."""
        google = self.site.google()
        number = google.project_number(self.site.spec.project)
        findings: list[Finding] = []
        changes = []
        for name in checks.bucket_names(self.site.spec):
            policy = _policy(lambda name=name: google.bucket_policy(name))  # type: ignore[misc]
            lacking = missing(policy or {}, bucket_grants(self.site, name, number))
            findings += _too_many(name, policy or {}, lacking)
            if lacking:
                changes.append(self._grant(name, lacking, exists=policy is not None))
        return Look(tuple(findings), tuple(changes))

    def _grant(self, name: str, lacking: tuple[Grant, ...], *, exists: bool) -> Change:
        google, spec = self.site.google(), self.site.spec
        new_cluster = spec if cluster_of(google, spec) is None else None

        def act() -> None:
            make_grants(
                lambda: google.bucket_policy(name), lambda policy: google.set_bucket_policy(name, policy), lacking
            )

        return Change(
            object=f"bucket {name}",
            action="grant",
            found="access is missing" if exists else "no bucket",
            wanted="; ".join(str(grant) for grant in lacking),
            act=act,
            commands=tuple(gcloud.grant_on_bucket(name, grant) for grant in lacking),
            terraform="\n".join(
                terraform.bucket_member(
                    name,
                    grant,
                    _label(grant),
                    new_bucket=not exists,
                    new_cluster=new_cluster if "/workloadIdentityPools/" in grant.member else None,
                )
                for grant in lacking
            ),
        )


@dataclass(frozen=True)
class KeysStep:
    """Customer-managed keys: Cloud Storage's own account has to be able to encrypt with them before a bucket does."""

    site: Site
    title: str = "keys"

    def look(self) -> Look:
        """Return which keys Cloud Storage may not use yet, and which ones can't encrypt."""
        google, spec = self.site.google(), self.site.spec
        findings: list[Finding] = []
        changes = []
        for name in checks.bucket_names(spec):
            key = spec.bucket(name).kms_key
            if key is None:
                continue
            findings += self._unfit(key)
            agent = google.storage_agent(checks.bucket_project(spec, name))
            grant = Grant(ENCRYPTER_DECRYPTER, f"serviceAccount:{agent}")
            policy = _policy(lambda key=key: google.key_policy(key))  # type: ignore[misc]
            if missing(policy or {}, [grant]):
                changes.append(self._grant(key, grant))
        return Look(tuple(findings), tuple(changes))

    def _unfit(self, key: str) -> Iterator[Finding]:
        """Return why nothing could be written with a key: objects would be refused one by one, long after."""
        where, (project, location, ring, name) = f"key {key}", key.split("/")[1::2]
        try:
            found = self.site.google().key(key)
        except Forbidden as refusal:
            if refusal.reason != SERVICE_DISABLED:
                raise
            # Once the API is enabled, this is looked at again.
            return
        if found is None:
            yield error(where, "there is none", "a key of Cloud KMS", "gcloud kms keys list, or leave kms_key out")
        elif found.get("purpose") != "ENCRYPT_DECRYPT":
            yield error(where, f"purpose {found.get('purpose')}", "ENCRYPT_DECRYPT: Cloud Storage takes no other")
        elif (state := (found.get("primary") or {}).get("state")) != "ENABLED":
            version = str((found.get("primary") or {}).get("name") or "").rpartition("/")[2]
            yield error(
                where,
                f"its primary version {version or '(none)'} is {state or 'not there'}",
                "ENABLED, or nothing can be written to the bucket and nothing read from it",
                gcloud.enable_key(project, location, ring, name, version or "VERSION"),
            )

    def _grant(self, key: str, grant: Grant) -> Change:
        google = self.site.google()

        def act() -> None:
            make_grants(lambda: google.key_policy(key), lambda policy: google.set_key_policy(key, policy), [grant])

        return Change(
            object=f"key {key}",
            action="grant",
            found="Cloud Storage may not use it",
            wanted=str(grant),
            act=act,
            commands=(gcloud.grant_on_key(key, grant),),
            terraform=terraform.key_member(key, grant),
        )


def bucket_grants(site: Site, bucket: str, number: int) -> list[Grant]:
    """Return all grants that a bucket has to have.

    The driver's principal is of the cluster's project, wherever the bucket lives.

    :param number: of the cluster's project
    """
    spec = site.spec
    accounts = {run.name: run.trainer.service_account or "default" for run in site.runs}
    if not checks.is_for_backups(spec, bucket):
        return [
            Grant(OBJECT_USER, principals.service_account_principal(spec.project, number, spec.namespace, account))
            for account in sorted(set(accounts.values()))
        ]
    grants = [Grant(OBJECT_USER, principals.driver_principal(spec.project, number))]
    if spec.bucket(bucket).compute_default_viewer:
        grants.append(Grant(OBJECT_VIEWER, principals.compute_default(number)))
    for run in sorted(site.runs, key=lambda each: each.name):
        if run.bucket == bucket:
            account = principals.service_account_principal(spec.project, number, spec.namespace, accounts[run.name])
            grants += run_grants(bucket, run.name, account)
    return grants


def _too_many(bucket: str, policy: Policy, lacking: Iterable[Grant]) -> list[Finding]:
    findings = []
    members = {grant.member for grant in lacking if grant.condition}
    for member in sorted(members):
        has = conditions_of(policy, OBJECT_USER, member)
        more = sum(1 for grant in lacking if grant.member == member and grant.condition and grant.role == OBJECT_USER)
        if has + more > CONDITIONS_AT_MOST:
            findings.append(
                error(
                    f"bucket {bucket}",
                    f"{has + more} runs whose pods are {member}",
                    f"at most {CONDITIONS_AT_MOST}: Cloud Storage takes no more conditions for one role and member",
                    "give runs service accounts of their own (trainer.service_account), or take the grants of runs "
                    "that are over away",
                )
            )
    return findings


def _policy(read: Callable[[], Policy]) -> Policy | None:
    """Return a policy; None when what it is about does not exist yet."""
    try:
        return read()
    except NotFound:
        return None
    except Forbidden as refusal:
        if refusal.reason == SERVICE_DISABLED:
            return None
        raise


def _label(grant: Grant) -> str:
    """Return a word that tells a grant from the others of a bucket, for Terraform's names."""
    account = grant.member.partition("/subject/ns/")[2] or grant.member.partition(":")[2].partition("@")[0]
    return f"{account} {grant.condition.title}" if grant.condition else account
