"""Who may do what in Cloud Storage: callers, policies of buckets and of the project, customer-managed keys.

A caller is known by the token in its Authorization header, or by the address at which it calls: the server opens a
*door*, a loopback address of its own, for each workload identity, since a client of an emulator sends no token. A
caller without either owns the project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everstep_sandbox.google.errors import GoogleError
from everstep_sandbox.google.identities import Identities
from everstep_sandbox.google.policies import is_member
from everstep_sandbox.google.state import PROJECT
from everstep_sandbox.storage import conditions, errors, roles
from everstep_sandbox.storage.conditions import Subject
from everstep_sandbox.storage.vault import Vault

Object = dict[str, Any]

OWNER = ""
_LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
_ENCRYPTS = "roles/cloudkms.cryptoKeyEncrypterDecrypter"


class Access:
    """The rights of callers in one sandbox. Its project's policies are read where Google's server keeps them."""

    def __init__(self, sandbox: Path, vault: Vault) -> None:
        self._vault = vault
        self._path = sandbox / "google" / "state.json"
        self._identities = Identities(sandbox, PROJECT)
        self.denied: set[str] = set()
        """A fault: patterns of identities that may do nothing, whatever policies say."""
        self._seen: tuple[int, Object] = (-1, {})

    @property
    def number(self) -> str:
        """The project's number; "0" while Google's server has not made the project."""
        return str(self._project().get("number", "0"))

    @property
    def agent(self) -> str:
        """Cloud Storage's own service account in the project."""
        return f"service-{self.number}@gs-project-accounts.iam.gserviceaccount.com"

    def caller(self, authorization: str) -> str:
        """Raises StorageError 401 for a token that proves nothing."""
        try:
            return self._identities.caller(authorization)
        except GoogleError as refused:
            raise errors.StorageError(401, "authError", "Invalid Credentials") from refused

    def check(self, caller: str, permission: str, bucket: str, subject: Subject | None = None) -> None:
        """Raises StorageError 403 when the caller lacks a permission on a bucket ("" stands for the project)."""
        if self.may(caller, permission, bucket, subject):
            return
        who = "Caller" if caller.startswith("principal") else caller
        what = (
            "object" if subject is not None and "/objects/" in subject.name and ".list" not in permission else "bucket"
        )
        resource = f"the Google Cloud Storage {what}" if bucket else "the Google Cloud project"
        raise errors.StorageError(
            403,
            "forbidden",
            f"{who} does not have {permission} access to {resource}. Permission '{permission}' denied on resource "
            "(or it may not exist).",
        )

    def may(self, caller: str, permission: str, bucket: str, subject: Subject | None = None) -> bool:
        if caller == OWNER:
            return True
        if any(re.search(pattern, caller) for pattern in self.denied):
            return False
        asked = subject or Subject(f"projects/_/buckets/{bucket}", "storage.googleapis.com/Bucket")
        for binding in self._bindings(bucket):
            if self._is_member(caller, binding.get("members", ())) and self._holds(binding["role"], permission):
                expression = (binding.get("condition") or {}).get("expression")
                if expression is None or conditions.holds(expression, asked):
                    return True
        return False

    def check_key(self, key: str | None) -> None:
        """Raises StorageError 403 when Cloud Storage may not use a customer-managed key, 400 for one that is not."""
        if not key:
            return
        project = self._project()
        if key not in project.get("keys", ()):
            raise errors.StorageError(400, "invalid", f"Cloud KMS key name {key} is invalid or does not exist.")
        for binding in (project["policies"].get(key) or {}).get("bindings", ()):
            if binding["role"] in (_ENCRYPTS, "roles/owner") and is_member(self.agent, binding.get("members", ())):
                return
        raise errors.StorageError(
            403,
            "forbidden",
            "Permission denied on Cloud KMS key. Please ensure that your Cloud Storage service account has been "
            "authorized to use this key.",
        )

    def first_policy(self, project: str) -> Object:
        """The policy that a bucket comes with."""
        return {
            "version": 1,
            "bindings": [
                {
                    "role": "roles/storage.legacyBucketOwner",
                    "members": [f"projectEditor:{project}", f"projectOwner:{project}"],
                },
                {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{project}"]},
            ],
            "revision": 1,
        }

    def _bindings(self, bucket: str) -> Iterator[Object]:
        project = self._project()
        name = f"projects/{project.get('project', PROJECT)}"
        yield from (project.get("policies", {}).get(name) or {}).get("bindings", ())
        if bucket:
            yield from (self._vault.index.policy(bucket) or {}).get("bindings", ())

    def _is_member(self, caller: str, members: list[str]) -> bool:
        if is_member(caller, members):
            return True
        project = self._project()
        for binding in (project.get("policies", {}).get(f"projects/{project.get('project')}") or {}).get(
            "bindings", ()
        ):
            kind = {"roles/owner": "projectOwner", "roles/editor": "projectEditor", "roles/viewer": "projectViewer"}
            group = kind.get(binding["role"])
            if group and f"{group}:{project['project']}" in members and is_member(caller, binding.get("members", ())):
                return True
        return False

    def _holds(self, role: str, permission: str) -> bool:
        custom = self._project().get("roles", {}).get(role)
        if custom is not None:
            return permission in (custom.get("includedPermissions") or ())
        return roles.predefined(role, permission)

    def _project(self) -> Object:
        try:
            changed = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        if changed != self._seen[0]:
            self._seen = (changed, json.loads(self._path.read_text(encoding="utf-8")))
        return self._seen[1]


def check_policy(policy: Object) -> None:
    """Raises StorageError 400 for a policy that Cloud Storage would not take."""
    from everstep_sandbox.google import policies

    try:
        policies.check_policy(policy)
        for binding in policy.get("bindings", ()):
            if binding.get("condition"):
                conditions.check(str(binding["condition"].get("expression", "")))
    except GoogleError as refused:
        raise errors.invalid(refused.message) from refused
    except conditions.BadCondition as problem:
        raise errors.invalid(f"Condition expression compilation failed: {problem}") from problem


def listing_subject(bucket: str, prefix: str) -> Subject:
    """What a condition sees of a listing: the bucket, and the prefix that is listed."""
    return Subject(f"projects/_/buckets/{bucket}", "storage.googleapis.com/Bucket", {_LIST_PREFIX: prefix})


def object_subject(bucket: str, name: str) -> Subject:
    return Subject(f"projects/_/buckets/{bucket}/objects/{name}")


def folder_subject(bucket: str, name: str) -> Subject:
    return Subject(f"projects/_/buckets/{bucket}/folders/{name}", "storage.googleapis.com/Folder")
