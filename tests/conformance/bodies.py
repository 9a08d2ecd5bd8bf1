"""Objects that the tests create: pods, and JobSets as Everstep makes them."""

from __future__ import annotations

from typing import Any

from tests.conformance.api import Object

POOL_LABEL = "cloud.google.com/gke-nodepool"
TPU = "google.com/tpu"
TPU_TAINT: Object = {"key": TPU, "value": "present", "effect": "NoSchedule"}

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

USER_ERRORS = (64, 65, 66, 70)
LOST_PEER = (75, 76)


def config_map(name: str, data: dict[str, str] | None = None, **meta: Any) -> Object:
    body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
    return body | ({"data": data} if data else {})


def pod(name: str, *, labels: dict[str, str] | None = None, tpu: int | None = None, **spec: Any) -> Object:
    """A pod of one container that asks for little."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"restartPolicy": "Never", "containers": [_container("main", tpu)], **spec},
    }


def job(name: str, **spec: Any) -> Object:
    """A Job of one pod."""
    template = {"spec": {"restartPolicy": "Never", "containers": [_container("main", None)]}}
    body = {"template": template, "backoffLimit": 0, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def jobset(
    name: str,
    *,
    slices: int = 2,
    hosts: int = 2,
    tpu: int | None = None,
    exclusive: bool = False,
    grace: int = 10,
    max_restarts: int = 2,
    strategy: str = "BlockingRecreate",
    node_selector: dict[str, str] | None = None,
    tolerations: list[Object] | None = None,
    priority: str | None = None,
    annotations: dict[str, str] | None = None,
    **pod_spec: Any,
) -> Object:
    """A JobSet with the failure policies that Everstep gives its runs."""
    pod_template: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [_container("trainer", tpu)],
        **({"nodeSelector": node_selector} if node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"priorityClassName": priority} if priority else {}),
        **pod_spec,
    }
    exit_codes = {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": "trainer",
            "operator": "In",
            "values": sorted((*USER_ERRORS, *LOST_PEER)),
        },
    }
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    slice_job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [exit_codes, disrupted]},
        "template": {"spec": pod_template},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "annotations": {**(annotations or {}), **({EXCLUSIVE: POOL_LABEL} if exclusive else {})},
        },
        "spec": {
            "failurePolicy": {
                "maxRestarts": max_restarts,
                "restartStrategy": strategy,
                "rules": [
                    _rule("restartIsUseless", "FailJobSet", f"exit code ({_any(USER_ERRORS)})"),
                    _rule(
                        "notItsFault",
                        "RestartJobSetAndIgnoreMaxRestarts",
                        f"condition DisruptionTarget|exit code ({_any(LOST_PEER)})",
                    ),
                ],
            },
            "replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": slice_job}}],
        },
    }


def _rule(name: str, action: str, message: str) -> Object:
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": ["PodFailurePolicy"],
        # As Everstep writes them: true whether the controller searches the message or wants all of it.
        "onJobFailureMessagePatterns": [f".*({message}) matching.*"],
    }


def _any(codes: tuple[int, ...]) -> str:
    return "|".join(map(str, codes))


def _container(name: str, tpu: int | None) -> Object:
    resources = {"resources": {"limits": {TPU: str(tpu)}}} if tpu else {}
    return {"name": name, "image": "python:3.11", "command": ["python"], **resources}
