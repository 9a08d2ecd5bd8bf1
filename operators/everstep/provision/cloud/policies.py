"""IAM policies: what is missing in one, and the policy with it; everything else in it stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.clients.errors import Conflict
from everstep.clients.google import POLICY_VERSION

Policy = dict[str, Any]

OBJECT_USER = "roles/storage.objectUser"
OBJECT_VIEWER = "roles/storage.objectViewer"
ENCRYPTER_DECRYPTER = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
# Cloud Storage takes at most this many bindings of one role and member that differ in their condition.
CONDITIONS_AT_MOST = 20
# Somebody who changes the policy between each reading and writing is not unlucky but a loop.
TRIES = 10


@dataclass(frozen=True)
class Condition:
    """When a binding holds. Two conditions are the same when their expressions are."""

    title: str
    expression: str

    def as_dict(self) -> dict[str, str]:
        """Return the condition as IAM writes it."""
        return {"title": self.title, "expression": self.expression}


@dataclass(frozen=True)
class Grant:
    """A role for a member, under a condition or always."""

    role: str
    member: str
    condition: Condition | None = None

    def __str__(self) -> str:
        text = f"{self.role} for {self.member}"
        return f"{text} in {self.condition.title}" if self.condition else text


def run_folders(bucket: str, run: str) -> Condition:
    """Return the condition that narrows a role to the folders that a run's own pods use: reports and durable saves.

    Names in it are those of objects and, in hierarchical buckets, of folders; listing is about the bucket itself, and
    narrowed by the prefix that is asked for.
    """
    parts = []
    for folder in ("everstep", "checkpoints"):
        prefix = f"{run}/{folder}/"
        parts += [
            f'resource.name.startsWith("projects/_/buckets/{bucket}/objects/{prefix}")',
            f'resource.name.startsWith("projects/_/buckets/{bucket}/folders/{prefix}")',
            f'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith("{prefix}")',
        ]
    return Condition(f"run {run}", " || ".join(parts))


def run_reading(bucket: str, run: str) -> Condition:
    """Return the condition that narrows a role to a run's whole folder.

    Its pods look at the backups there before they start afresh, and read the `.meta` objects of the newest one.
    """
    prefix = f"{run}/"
    return Condition(
        f"run {run}, reading",
        f'resource.name.startsWith("projects/_/buckets/{bucket}/objects/{prefix}") || '
        f'resource.name.startsWith("projects/_/buckets/{bucket}/folders/{prefix}") || '
        f'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith("{prefix}")',
    )


def missing(policy: Mapping[str, Any], grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Return those of the grants that a policy lacks. A role without a condition is as good as one with it."""
    return tuple(grant for grant in grants if not any(_gives(each, grant) for each in policy.get("bindings") or ()))


def with_grants(policy: Mapping[str, Any], grants: Iterable[Grant]) -> Policy:
    """Return the policy with grants that it lacks; all else in it, its etag too, is untouched."""
    bindings = list(policy.get("bindings") or ())
    for grant in missing(policy, grants):
        for index, binding in enumerate(bindings):
            if binding.get("role") == grant.role and _is_same(binding.get("condition"), grant.condition):
                bindings[index] = {**binding, "members": [*(binding.get("members") or ()), grant.member]}
                break
        else:
            bindings.append(_binding(grant))
    changed = {**policy, "bindings": bindings}
    if any("condition" in binding for binding in bindings):
        changed["version"] = POLICY_VERSION
    return changed


def make_grants(
    read: Callable[[], Policy], write: Callable[[Policy], object], grants: Iterable[Grant]
) -> tuple[Grant, ...]:
    """Read, add what is missing and write, from a fresh reading whenever somebody else was faster.

    :param write: raises Conflict when the policy has another etag by now
    :return: what was missing at the last reading; nothing was written without it
    """
    grants = tuple(grants)
    for tried in range(1, TRIES + 1):
        policy = read()
        lacking = missing(policy, grants)
        if not lacking:
            return ()
        try:
            write(with_grants(policy, lacking))
        except Conflict:
            if tried == TRIES:
                raise
            continue
        return lacking
    raise AssertionError("unreachable")


def conditions_of(policy: Mapping[str, Any], role: str, member: str) -> int:
    """Return how many conditional bindings of a role a member has."""
    bindings = policy.get("bindings") or ()
    return sum(
        1
        for each in bindings
        if each.get("role") == role and member in (each.get("members") or ()) and each.get("condition")
    )


def _gives(binding: Mapping[str, Any], grant: Grant) -> bool:
    if binding.get("role") != grant.role or grant.member not in (binding.get("members") or ()):
        return False
    return not binding.get("condition") or _is_same(binding.get("condition"), grant.condition)


def _is_same(found: Mapping[str, Any] | None, wanted: Condition | None) -> bool:
    if not found or wanted is None:
        return not found and wanted is None
    return found.get("expression") == wanted.expression


def _binding(grant: Grant) -> dict[str, Any]:
    binding: dict[str, Any] = {"role": grant.role, "members": [grant.member]}
    return {**binding, "condition": grant.condition.as_dict()} if grant.condition else binding
