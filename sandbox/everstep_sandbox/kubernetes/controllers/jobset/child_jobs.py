"""The Jobs and the service that a JobSet makes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from everstep_sandbox.kubernetes.controllers.jobset import keys
from everstep_sandbox.kubernetes.objects import Object, clone


def replicas(replicated_job: Object) -> int:
    return int(replicated_job.get("replicas", 1))


def child_jobs(jobset: Object) -> Iterator[tuple[Object, Object]]:
    """(replicated job, Job) for every Job of the current attempt, in order."""
    first = 0
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        for index in range(replicas(replicated_job)):
            yield replicated_job, _child_job(jobset, replicated_job, index, first + index)
        first += replicas(replicated_job)


def resumption(job: Object, template: Object) -> Object:
    """The change of a Job's spec that resumes it: with what of its pod template may have changed meanwhile.

    As the real controller does, it only adds: a label or a node selector that is gone from the template stays.
    """
    if (job.get("status") or {}).get("startTime"):
        return {"suspend": False}
    given, meta = template["spec"], template.get("metadata") or {}
    merged: Object = {}
    for field in ("tolerations", "schedulingGates"):
        present = job["spec"]["template"]["spec"].get(field) or []
        added = [item for item in given.get(field) or () if item not in present]
        if added:
            merged[field] = [*present, *added]
    if given.get("nodeSelector"):
        merged["nodeSelector"] = given["nodeSelector"]
    marks = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
    return {"suspend": False, "template": {"metadata": marks, "spec": merged}}


def headless_service(jobset: Object) -> Object:
    network = jobset["spec"].get("network") or {}
    return {
        "metadata": {
            "name": keys.subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "labels": {keys.JOBSET_NAME: jobset["metadata"]["name"]},
            "ownerReferences": [keys.owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "type": "ClusterIP",
            "selector": {keys.JOBSET_NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }


def _child_job(jobset: Object, replicated_job: Object, index: int, global_index: int) -> Object:
    meta = jobset["metadata"]
    template = clone(replicated_job["template"])
    spec = template["spec"]
    pod = spec["template"]
    name = keys.job_name(jobset, replicated_job, index)
    marks = _marks(jobset, replicated_job, name, index, global_index)
    annotations = {**marks, **_placement(meta.get("annotations") or {})}
    template_meta = template.get("metadata") or {}
    pod_meta = pod.setdefault("metadata", {})
    pod_meta["labels"] = {**(pod_meta.get("labels") or {}), **marks}
    pod_meta["annotations"] = {**(pod_meta.get("annotations") or {}), **annotations}
    if keys.EXCLUSIVE in (template_meta.get("annotations") or {}):
        pod_meta["annotations"].setdefault(keys.EXCLUSIVE, template_meta["annotations"][keys.EXCLUSIVE])
    if keys.dns_is_enabled(jobset):
        pod["spec"]["subdomain"] = keys.subdomain(jobset)
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    return {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(template_meta.get("labels") or {}), **marks},
            "annotations": {**(template_meta.get("annotations") or {}), **annotations},
            "ownerReferences": [keys.owner_reference(jobset)],
        },
        "spec": spec,
    }


def _marks(jobset: Object, replicated_job: Object, name: str, index: int, global_index: int) -> dict[str, str]:
    meta, spec = jobset["metadata"], jobset["spec"]
    group = replicated_job.get("groupName") or "default"
    members = [other for other in spec["replicatedJobs"] if (other.get("groupName") or "default") == group]
    before = members[: next(i for i, other in enumerate(members) if other["name"] == replicated_job["name"])]
    marks = {
        keys.JOBSET_NAME: meta["name"],
        keys.JOBSET_UID: meta["uid"],
        keys.REPLICATED_JOB: replicated_job["name"],
        keys.REPLICATED_JOB_REPLICAS: str(replicas(replicated_job)),
        keys.GLOBAL_REPLICAS: str(sum(map(replicas, spec["replicatedJobs"]))),
        keys.GROUP_NAME: group,
        keys.GROUP_REPLICAS: str(sum(map(replicas, members))),
        keys.JOB_INDEX: str(index),
        keys.JOB_GLOBAL_INDEX: str(global_index),
        keys.JOB_GROUP_INDEX: str(sum(map(replicas, before)) + index),
        keys.JOB_KEY: keys.job_key(meta["namespace"], name),
        keys.RESTART_ATTEMPT: str((jobset.get("status") or {}).get("restarts", 0)),
        keys.JOB_RESTART_ATTEMPT: "0",
    }
    if endpoint := keys.coordinator_endpoint(jobset):
        marks[keys.COORDINATOR] = endpoint
    return marks


def _placement(annotations: dict[str, str]) -> dict[str, str]:
    return {key: annotations[key] for key in (keys.EXCLUSIVE, keys.NODE_SELECTOR_STRATEGY) if key in annotations}
