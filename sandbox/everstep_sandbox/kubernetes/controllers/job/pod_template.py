"""The pods that a Job makes."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.kubernetes.controllers.pods import INDEX_ANNOTATION
from everstep_sandbox.kubernetes.objects import Object, clone

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"


def is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def build_pod(job: Object, index: int | None) -> Object:
    """The pod for a completion index, or for a Job without indexes."""
    meta, template = job["metadata"], clone(job["spec"]["template"])
    template_meta: dict[str, Any] = template.get("metadata") or {}
    labels = {
        **(template_meta.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    annotations = dict(template_meta.get("annotations") or {})
    spec = template["spec"]
    base = f"{meta['name']}-"
    if index is not None:
        # The index must survive the cut that the API makes to a generated name's base.
        base = f"{meta['name'][: 56 - len(str(index))]}-{index}-"
        labels[INDEX_ANNOTATION] = annotations[INDEX_ANNOTATION] = str(index)
        spec.setdefault("hostname", f"{meta['name']}-{index}")
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            _tell_index(container)
    return {
        "metadata": {
            "generateName": base,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [TRACKING_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _tell_index(container: Object) -> None:
    environment = container.setdefault("env", [])
    if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in environment):
        field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_ANNOTATION}']"}
        environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}})
