"""IAM policies of the project and of Cloud KMS keys, custom roles, and what a caller may do by them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

from everstep_sandbox.google import errors
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.state import State

Object = dict[str, Any]

_MEMBER = re.compile(
    r"allUsers|allAuthenticatedUsers|principal(Set)?://iam\.googleapis\.com/.+|"
    r"(deleted:)?(user|group|serviceAccount|domain|projectOwner|projectEditor|projectViewer):.+"
)

_ROLES: dict[str, tuple[str, ...]] = {
    "roles/owner": (r".*",),
    "roles/editor": (r"(?!.*\.setIamPolicy$).*",),
    "roles/viewer": (r".*\.(get|list|getIamPolicy)$",),
    "roles/container.admin": (r"container\..*", r"resourcemanager\.projects\.get$"),
    "roles/container.clusterAdmin": (r"container\.(clusters|operations)\..*", r"resourcemanager\.projects\.get$"),
    "roles/container.viewer": (r"container\..*\.(get|list)$", r"resourcemanager\.projects\.get$"),
    "roles/serviceusage.serviceUsageAdmin": (r"serviceusage\..*",),
    "roles/cloudkms.admin": (r"cloudkms\..*(IamPolicy|get|list)$",),
    "roles/iam.serviceAccountUser": (r"iam\.serviceAccounts\.(actAs|get|list)$",),
    "roles/compute.viewer": (r"compute\..*\.(get|list)$",),
    "roles/browser": (r"resourcemanager\.projects\.(get|getIamPolicy|list)$",),
}
"""What predefined roles hold, as patterns of permissions, as far as the sandbox asks for them."""


class Policies:
    """Handlers of `:getIamPolicy` and `:setIamPolicy`, of the project and of custom roles."""

    def __init__(self, state: State) -> None:
        self._state = state

    def project(self, request: Request, project: str) -> Object:
        return {
            "name": f"projects/{self._state.number}",
            "projectId": self._state.project,
            "displayName": "Everstep sandbox",
            "state": "ACTIVE",
            "createTime": "2025-01-01T00:00:00Z",
            "etag": 'W/"a1b2c3"',
        }

    def get_of_project(self, request: Request, project: str) -> Object:
        return self._get(f"projects/{self._state.project}")

    def set_of_project(self, request: Request, project: str) -> Object:
        return self._set(f"projects/{self._state.project}", request)

    def key(self, request: Request, *parts: str) -> Object:
        name = self._key(parts)
        state = self._state.document.get("key_states", {}).get(name, "ENABLED")
        return {
            "name": name,
            "purpose": "ENCRYPT_DECRYPT",
            "createTime": "2025-01-01T00:00:00Z",
            "primary": {"name": f"{name}/cryptoKeyVersions/1", "state": state},
        }

    def get_of_key(self, request: Request, *parts: str) -> Object:
        return self._get(self._key(parts))

    def set_of_key(self, request: Request, *parts: str) -> Object:
        return self._set(self._key(parts), request)

    def add_key(self, document: Object) -> Object:
        """Makes a key known, whose primary version is in a `state` (ENABLED if none is given): for tests."""
        if document["name"] not in self._state.document["keys"]:
            self._state.document["keys"].append(document["name"])
        self._state.document.setdefault("key_states", {})[document["name"]] = document.get("state", "ENABLED")
        self._state.save()
        return {"name": document["name"]}

    def role(self, request: Request, project: str, name: str) -> Object:
        return self._role(f"projects/{self._state.project}/roles/{name}")

    def create_role(self, request: Request, project: str) -> Object:
        asked = request.document()
        name = f"projects/{self._state.project}/roles/{asked.get('roleId', '')}"
        if not re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", asked.get("roleId", "")):
            raise errors.invalid(f"The role id {asked.get('roleId', '')!r} is not valid.")
        if name in self._state.roles:
            raise errors.GoogleError("ALREADY_EXISTS", f"A role named {asked['roleId']} in {name} already exists.")
        self._state.roles[name] = {"name": name, **(asked.get("role") or {}), "etag": _etag(1), "revision": 1}
        self._state.save()
        return self._role(name)

    def patch_role(self, request: Request, project: str, name: str) -> Object:
        whole = f"projects/{self._state.project}/roles/{name}"
        found = self._role(whole)
        asked = request.document()
        if asked.get("etag", found["etag"]) != found["etag"]:
            raise errors.GoogleError("ABORTED", "There were concurrent policy changes. Please retry the whole RMW.")
        revision = self._state.roles[whole]["revision"] + 1
        self._state.roles[whole] = {**found, **asked, "name": whole, "etag": _etag(revision), "revision": revision}
        self._state.save()
        return self._role(whole)

    def may(self, caller: str, permission: str, resource: str = "") -> bool:
        """Whether an identity ("" is the owner) holds a permission on the project, or on a resource of its own."""
        if not caller:
            return True
        policies = [self._get(f"projects/{self._state.project}")]
        if resource in self._state.policies:
            policies.append(self._get(resource))
        return any(
            self._holds(binding["role"], permission)
            for policy in policies
            for binding in policy.get("bindings", ())
            if is_member(caller, binding.get("members", ()))
        )

    def _holds(self, role: str, permission: str) -> bool:
        if role in self._state.roles:
            return permission in (self._state.roles[role].get("includedPermissions") or ())
        return any(re.match(pattern, permission) for pattern in _ROLES.get(role, ()))

    def _role(self, name: str) -> Object:
        if name not in self._state.roles:
            raise errors.GoogleError("NOT_FOUND", f"The role named {name} was not found.")
        return {key: value for key, value in self._state.roles[name].items() if key != "revision"}

    def _key(self, parts: tuple[str, ...]) -> str:
        project, location, ring, key = parts
        name = f"projects/{project}/locations/{location}/keyRings/{ring}/cryptoKeys/{key}"
        if name not in self._state.document["keys"]:
            raise errors.GoogleError("NOT_FOUND", f"CryptoKey {name} not found.")
        return name

    def _get(self, resource: str) -> Object:
        policy = self._state.policies.get(resource) or {"revision": 0}
        shown = {key: value for key, value in policy.items() if key != "revision"}
        return {"version": 1, **shown, "etag": _etag(policy["revision"])}

    def _set(self, resource: str, request: Request) -> Object:
        wanted = request.document().get("policy") or {}
        current = self._get(resource)
        if wanted.get("etag", current["etag"]) != current["etag"]:
            raise errors.GoogleError(
                "ABORTED",
                "There were concurrent policy changes. Please retry the whole read-modify-write with exponential "
                "backoff.",
            )
        check_policy(wanted)
        revision = (self._state.policies.get(resource) or {"revision": 0})["revision"] + 1
        self._state.policies[resource] = {
            "version": wanted.get("version", 1),
            "bindings": wanted.get("bindings", []),
            "revision": revision,
        }
        self._state.save()
        return self._get(resource)


def check_policy(policy: Object) -> None:
    """Raises GoogleError 400 for a policy that IAM would not take."""
    for binding in policy.get("bindings", ()):
        role = str(binding.get("role", ""))
        if not re.fullmatch(r"(roles|projects/[^/]+/roles|organizations/[^/]+/roles)/[\w.]+", role):
            raise errors.invalid(f"Role {role} is not supported for this resource.")
        if binding.get("condition") and policy.get("version") != 3:
            raise errors.invalid("Policies with conditional role bindings must specify version 3.")
        for member in binding.get("members", ()):
            if not _MEMBER.fullmatch(member):
                raise errors.invalid(f"Invalid member: {member}")


def is_member(caller: str, members: Iterable[str]) -> bool:
    """Whether one of a binding's members is the caller: an email, or a principal://… of a workload."""
    for member in members:
        kind, _, rest = member.partition(":")
        if member in ("allUsers", "allAuthenticatedUsers") or member == caller:
            return True
        if kind in ("user", "serviceAccount") and rest == caller:
            return True
        if kind == "principalSet" and _in_set(caller, member):
            return True
    return False


def _in_set(caller: str, member: str) -> bool:
    """`principalSet://…/POOL/namespace/NS` and `…/kubernetes.cluster/URL` (every workload of the pool)."""
    pool, _, what = member.removeprefix("principalSet").partition(".svc.id.goog/")
    own_pool, _, subject = caller.removeprefix("principal").partition(".svc.id.goog/")
    if not what or pool != own_pool:
        return False
    if what.startswith("namespace/"):
        return subject.startswith(f"subject/ns/{what.removeprefix('namespace/')}/")
    return what.startswith("kubernetes.cluster/")


def _etag(revision: int) -> str:
    return base64.b64encode(b"\x07" + revision.to_bytes(7, "big")).decode()
