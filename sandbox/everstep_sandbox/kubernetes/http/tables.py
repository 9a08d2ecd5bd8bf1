"""Tables: the columns that kubectl prints, computed by the server as the real one computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.kubernetes.http import cells
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """priority 0 is always shown, 1 only with `-o wide`."""

    name: str
    cell: Callable[[Object], Any]
    priority: int = 0
    type: str = "string"


def table(
    resource: Resource, items: Sequence[Object], meta: dict[str, Any], *, include_object: str | None = None
) -> Object:
    """A meta.k8s.io/v1 Table. include_object: None or "Metadata", "Object", "None", as in the query."""
    columns = _COLUMNS.get(resource.plural, _DEFAULT)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": [
            {"cells": [column.cell(item) for column in columns], "object": _row_object(item, include_object)}
            for item in items
        ],
    }


def _row_object(obj: Object, include: str | None) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


_NAME = Column("Name", cells.name)
_AGE = Column("Age", cells.age)
_DEFAULT = (_NAME, _AGE)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        _NAME,
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        _AGE,
        Column("IP", cells.value_at("status", "podIP"), 1),
        Column("Node", cells.value_at("spec", "nodeName"), 1),
        Column("Nominated Node", cells.value_at("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", lambda pod: cells.NONE, 1),
    ),
    "nodes": (
        _NAME,
        Column("Status", cells.node_status),
        Column("Roles", lambda node: cells.NONE),
        _AGE,
        Column("Version", cells.value_at("status", "nodeInfo", "kubeletVersion", default="")),
        Column("Internal-IP", cells.node_address("InternalIP"), 1),
        Column("External-IP", cells.node_address("ExternalIP"), 1),
        Column("OS-Image", cells.value_at("status", "nodeInfo", "osImage", default=cells.UNKNOWN), 1),
        Column("Kernel-Version", cells.value_at("status", "nodeInfo", "kernelVersion", default=cells.UNKNOWN), 1),
        Column(
            "Container-Runtime",
            cells.value_at("status", "nodeInfo", "containerRuntimeVersion", default=cells.UNKNOWN),
            1,
        ),
    ),
    "jobs": (
        _NAME,
        Column("Status", cells.job_status),
        Column("Completions", cells.job_completions),
        Column("Duration", cells.job_duration),
        _AGE,
        Column("Selector", cells.pairs_at("spec", "selector", "matchLabels"), 1),
    ),
    "jobsets": (
        _NAME,
        Column("TerminalState", cells.value_at("status", "terminalState", default="")),
        Column("Restarts", cells.value_at("status", "restarts", default="")),
        Column("Completed", cells.completed),
        Column("Suspended", lambda jobset: str(jobset.get("spec", {}).get("suspend", "")).lower()),
        _AGE,
    ),
    "events": (
        Column("Last Seen", cells.event_last_seen),
        Column("Type", cells.value_at("type", default="")),
        Column("Reason", cells.value_at("reason", default="")),
        Column("Object", cells.event_object),
        Column("Source", cells.value_at("source", "component", default=""), 1),
        Column("Message", lambda event: str(event.get("message", "")).strip()),
        Column("Count", lambda event: event.get("count", 1), 1, "integer"),
        Column("Name", cells.name, 1),
    ),
    "priorityclasses": (
        _NAME,
        Column("Value", lambda pc: pc.get("value", 0), type="integer"),
        Column("Global-Default", lambda pc: bool(pc.get("globalDefault", False)), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", cells.value_at("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    "daemonsets": (
        _NAME,
        Column("Desired", cells.value_at("status", "desiredNumberScheduled", default=0), type="integer"),
        Column("Current", cells.value_at("status", "currentNumberScheduled", default=0), type="integer"),
        Column("Ready", cells.value_at("status", "numberReady", default=0), type="integer"),
        Column("Up-to-date", cells.value_at("status", "updatedNumberScheduled", default=0), type="integer"),
        Column("Available", cells.value_at("status", "numberAvailable", default=0), type="integer"),
        Column("Node Selector", cells.pairs_at("spec", "template", "spec", "nodeSelector")),
        _AGE,
    ),
    "services": (
        _NAME,
        Column("Type", cells.value_at("spec", "type", default="ClusterIP")),
        Column("Cluster-IP", cells.value_at("spec", "clusterIP")),
        Column("External-IP", lambda service: cells.NONE),
        Column("Port(s)", cells.ports),
        _AGE,
        Column("Selector", cells.pairs_at("spec", "selector"), 1),
    ),
    "namespaces": (_NAME, Column("Status", cells.value_at("status", "phase", default="")), _AGE),
    "configmaps": (_NAME, Column("Data", lambda cm: len(cm.get("data") or {}), type="integer"), _AGE),
    "secrets": (
        _NAME,
        Column("Type", cells.value_at("type", default="Opaque")),
        Column("Data", lambda secret: len(secret.get("data") or {}), type="integer"),
        _AGE,
    ),
    "leases": (_NAME, Column("Holder", cells.value_at("spec", "holderIdentity", default="")), _AGE),
    "serviceaccounts": (_NAME, Column("Secrets", lambda account: 0, type="integer"), _AGE),
    "customresourcedefinitions": (_NAME, Column("Created At", cells.value_at("metadata", "creationTimestamp"))),
    "checkpointconfigurations": (
        _NAME,
        Column("Bucket", cells.value_at("spec", "cloudStorageBucketName", default="")),
        _AGE,
    ),
}
