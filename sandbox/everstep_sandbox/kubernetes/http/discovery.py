"""Discovery: which groups, versions and resources there are (/api, /apis, /apis/<group>/<version>, /version)."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.kubernetes.resources import Resource, all_served, group_versions

VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.1-everstep-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-09-09T19:38:51Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# What a subresource answers to, and the kind it takes where that is not the resource's own.
_SUBRESOURCES: dict[str, dict[str, Any]] = {
    "status": {"verbs": ["get", "patch", "update"]},
    "log": {"verbs": ["get"]},
    "binding": {"verbs": ["create"], "kind": "Binding"},
    "eviction": {"verbs": ["create"], "kind": "Eviction", "group": "policy", "version": "v1"},
}


def core_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> dict[str, Any]:
    found = [_group(group, version) for group, version in group_versions() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(name: str) -> dict[str, Any] | None:
    """One APIGroup, or None where the group is not served."""
    for served_group, version in group_versions():
        if served_group == name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, version)}
    return None


def _group(name: str, version: str) -> dict[str, Any]:
    entry = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def resource_list(name: str, version: str) -> dict[str, Any] | None:
    """The APIResourceList of one group and version, or None where it is not served."""
    if (name, version) not in group_versions():
        return None
    entries: list[dict[str, Any]] = []
    for resource in all_served():
        if (resource.group, resource.version) == (name, version):
            entries.append(_entry(resource))
            entries.extend(_subresource_entry(resource, sub) for sub in resource.subresources)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}" if name else version,
        "resources": entries,
    }


def _entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource.create_only else _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subresource_entry(resource: Resource, name: str) -> dict[str, Any]:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        **_SUBRESOURCES[name],
    }
