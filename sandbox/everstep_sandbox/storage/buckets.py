"""Buckets: create, read, change, delete; their layout and IAM policy."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from everstep_sandbox.google.state import PROJECT
from everstep_sandbox.storage import errors
from everstep_sandbox.storage.access import Access, check_policy
from everstep_sandbox.storage.exchange import Request, Response
from everstep_sandbox.storage.records import Bucket, now
from everstep_sandbox.storage.vault import Vault

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_FIXED = frozenset(
    {"kind", "id", "name", "selfLink", "projectNumber", "generation", "metageneration", "etag"}
    | {"timeCreated", "updated", "hierarchicalNamespace"}
)
"""What a client can't set."""


class Buckets:
    """Handlers of ``/b`` and ``/b/<bucket>``."""

    def __init__(self, vault: Vault, access: Access | None = None) -> None:
        self._vault = vault
        self._access = access

    def create(self, request: Request) -> Response:
        described = request.document()
        name = described.get("name")
        if not isinstance(name, str):
            raise errors.required("name")
        if not _NAME.fullmatch(name):
            raise errors.invalid(f"Invalid bucket name: '{name}'", "name")
        if self._vault.index.bucket(name) is not None:
            raise errors.conflict("Your previous request to create the named bucket succeeded and you already own it.")
        hierarchical = bool((described.get("hierarchicalNamespace") or {}).get("enabled"))
        uniform = (described.get("iamConfiguration") or {}).get("uniformBucketLevelAccess") or {}
        if hierarchical and not uniform.get("enabled"):
            raise errors.invalid(
                "Hierarchical namespace can only be enabled on a bucket with uniform bucket-level access."
            )
        settings = _settings(described)
        if "location" in settings:
            settings |= _place(settings["location"])
        if self._access is not None:
            settings["projectNumber"] = self._access.number
            self._access.check_key((settings.get("encryption") or {}).get("defaultKmsKeyName"))
        time = now()
        bucket = Bucket(name, hierarchical, time, time, 1, settings)
        self._vault.add_bucket(bucket)
        if self._access is not None:
            with self._vault.index.transaction():
                self._vault.index.put_policy(name, self._access.first_policy(request.query.get("project", PROJECT)))
        return Response(document=bucket.resource(request.base_url))

    def list_all(self, request: Request) -> Response:
        items = [
            bucket.resource(request.base_url) for bucket in self._vault.index.buckets(request.query.get("prefix", ""))
        ]
        return Response(document={"kind": "storage#buckets", "items": items})

    def get(self, request: Request, bucket: str) -> Response:
        found = self._vault.bucket(bucket)
        self._check(request, found)
        return Response(document=found.resource(request.base_url))

    def patch(self, request: Request, bucket: str) -> Response:
        found = self._vault.bucket(bucket)
        self._check(request, found)
        described = request.document()
        wanted = described.get("hierarchicalNamespace")
        if wanted is not None and bool(wanted.get("enabled")) != found.hierarchical:
            raise errors.invalid("Hierarchical namespace can only be set when a bucket is created.")
        kept = ("location", "locationType", "projectNumber")
        settings = {key: found.settings[key] for key in found.settings if request.method == "PATCH" or key in kept}
        for key, value in _settings(described, keep_null=True).items():
            if value is None:
                settings.pop(key, None)
            elif key == "labels" and isinstance(settings.get(key), dict):
                merged = {**settings[key], **value}
                settings[key] = {label: text for label, text in merged.items() if text is not None}
            else:
                settings[key] = value
        if self._access is not None:
            self._access.check_key((settings.get("encryption") or {}).get("defaultKmsKeyName"))
        changed = dataclasses.replace(found, settings=settings, metageneration=found.metageneration + 1, updated=now())
        with self._vault.index.transaction():
            self._vault.index.put_bucket(changed)
        return Response(document=changed.resource(request.base_url))

    def delete(self, request: Request, bucket: str) -> Response:
        self._check(request, self._vault.bucket(bucket))
        if self._vault.index.objects(bucket, "", None, 1):
            raise errors.conflict("The bucket you tried to delete is not empty.")
        self._vault.remove_bucket(bucket)
        return Response(status=204)

    def layout(self, request: Request, bucket: str) -> Response:
        found = self._vault.bucket(bucket)
        document: dict[str, Any] = {
            "kind": "storage#storageLayout",
            "bucket": bucket,
            "location": found.settings.get("location", "US"),
            "locationType": found.settings.get("locationType", "multi-region"),
            "hierarchicalNamespace": {"enabled": found.hierarchical},
        }
        return Response(document=document)

    def get_policy(self, request: Request, bucket: str) -> Response:
        self._vault.bucket(bucket)
        return Response(document=self._policy(bucket))

    def set_policy(self, request: Request, bucket: str) -> Response:
        self._vault.bucket(bucket)
        wanted = request.document()
        current = self._policy(bucket)
        if wanted.get("etag", current["etag"]) != current["etag"]:
            raise errors.StorageError(
                412, "conditionNotMet", "The policy was changed since it was read: its etag is another one."
            )
        check_policy(wanted)
        policy = {
            "version": wanted.get("version", 1),
            "bindings": wanted.get("bindings", []),
            "revision": self._stored_policy(bucket)["revision"] + 1,
        }
        with self._vault.index.transaction():
            self._vault.index.put_policy(bucket, policy)
        return Response(document=self._policy(bucket))

    def test_permissions(self, request: Request, bucket: str, permissions: list[str]) -> Response:
        """Those of the asked permissions that the caller has on the whole bucket."""
        self._vault.bucket(bucket)
        if self._access is not None:
            permissions = [one for one in permissions if self._access.may(request.caller, one, bucket)]
        return Response(document={"kind": "storage#testIamPermissionsResponse", "permissions": permissions})

    def agent(self, request: Request, project: str) -> Response:
        """Cloud Storage's own service account in a project."""
        email = (
            self._access.agent if self._access is not None else "service-0@gs-project-accounts.iam.gserviceaccount.com"
        )
        return Response(document={"kind": "storage#serviceAccount", "email_address": email})

    def _stored_policy(self, bucket: str) -> dict[str, Any]:
        """With `revision`, which its etag shows and every change raises."""
        return self._vault.index.policy(bucket) or {"version": 1, "bindings": [], "revision": 0}

    def _policy(self, bucket: str) -> dict[str, Any]:
        policy = self._stored_policy(bucket)
        shown = {key: value for key, value in policy.items() if key != "revision"}
        return {
            "kind": "storage#policy",
            "resourceId": f"projects/_/buckets/{bucket}",
            **shown,
            "etag": f"CAE{policy['revision']}=",
        }

    def _check(self, request: Request, bucket: Bucket) -> None:
        wanted = request.number("ifMetagenerationMatch")
        unwanted = request.number("ifMetagenerationNotMatch")
        if wanted not in (None, bucket.metageneration):
            raise errors.precondition_failed()
        if unwanted == bucket.metageneration:
            raise errors.not_modified() if request.method == "GET" else errors.precondition_failed()


def _settings(described: dict[str, Any], *, keep_null: bool = False) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key not in _FIXED and (keep_null or value is not None)}


def _place(location: str) -> dict[str, str]:
    """A location as the service shows it, with its type."""
    shown = location.upper()
    kind = (
        "multi-region"
        if shown in ("US", "EU", "ASIA")
        else "dual-region"
        if shown[-1:].isdigit() and "-" not in shown
        else "region"
    )
    return {"location": shown, "locationType": kind}
