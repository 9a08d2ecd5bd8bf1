"""From a training spec to the JobSet that runs it under multi-tier checkpointing. Pure.

The shape of the object follows what JobSet and the checkpointing add-on demand: exactly one replicated job (only then
are ranks given), one Job per slice with exclusive placement on a node pool, no pod retries inside a Job, and a
blocking restart of the whole set, since ranks of two attempts must never meet.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from everstep.launch import exit_codes, labels
from everstep.spec.names import REPLICATED_JOB
from everstep.spec.training import TrainingSpec

API_VERSION = "jobset.x-k8s.io/v1alpha2"
CHECKPOINT_VOLUME = "checkpoint"
POD_INFO_VOLUME = "everstep"
POD_INFO_DIRECTORY = "/etc/everstep"
# A node that stops answering is given up after that, instead of Kubernetes' 300 s.
UNREACHABLE_SECONDS = 30

Manifest = dict[str, Any]


def build(spec: TrainingSpec, *, launch: int, holder: str, attempt: int = 1) -> Manifest:
    """Return the JobSet of a run's launch number `launch` (1, 2, …), for the holder of the run's lease.

    :param attempt: the how many-th JobSet it is that this holder makes, because those before it failed
    """
    manifest = _jobset(spec)
    spec_hash = fingerprint(spec)
    manifest["metadata"]["labels"][labels.OWNER] = labels.owner_hash(holder)
    manifest["metadata"]["annotations"] |= {
        labels.SPEC_HASH: spec_hash,
        labels.LAUNCH: str(launch),
        labels.ATTEMPT: str(attempt),
        labels.HOLDER: holder,
    }
    for container in _containers(manifest):
        for variable in container["env"]:
            if variable["name"] == "EVERSTEP_LAUNCH":
                variable["value"] = str(launch)
    return manifest


def fingerprint(spec: TrainingSpec) -> str:
    """Return a hash of all of the JobSet that a change of the spec can change; equal specs give equal hashes."""
    text = json.dumps(_jobset(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _jobset(spec: TrainingSpec) -> Manifest:
    cluster = spec.cluster_spec
    metadata: Manifest = {
        "name": spec.name,
        "namespace": cluster.namespace,
        "labels": {labels.RUN: spec.name},
        "annotations": {labels.EXCLUSIVE_TOPOLOGY: labels.NODE_POOL},
    }
    if cluster.queue is not None:
        metadata["labels"][labels.QUEUE_NAME] = cluster.queue
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": _failure_policy(spec),
            "replicatedJobs": [
                {"name": REPLICATED_JOB, "replicas": spec.slices.count, "template": {"spec": _job(spec)}}
            ],
        },
    }


def _failure_policy(spec: TrainingSpec) -> Manifest:
    disrupted = ["condition DisruptionTarget"]
    rules = []
    if spec.trainer.uses_library:
        rules.append(
            {
                "name": "restartIsUseless",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [_pattern([_exit_code(exit_codes.FATAL)])],
            }
        )
        disrupted.append(_exit_code(exit_codes.BYSTANDER))
    rules.append(
        {
            "name": "notItsFault",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [_pattern(disrupted)],
        }
    )
    return {"maxRestarts": spec.recovery.restarts, "restartStrategy": "BlockingRecreate", "rules": rules}


def _exit_code(codes: tuple[int, ...]) -> str:
    return f"exit code ({'|'.join(map(str, codes))})"


def _pattern(texts: list[str]) -> str:
    # Written so that it matches whether the controller searches the message or wants all of it.
    return f".*({'|'.join(texts)}) matching.*"


def _job(spec: TrainingSpec) -> Manifest:
    nodes = spec.pool.nodes_per_slice
    rules: list[Manifest] = []
    if spec.trainer.uses_library:
        rules.append(
            {
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": labels.TRAINER_CONTAINER,
                    "operator": "In",
                    "values": [*exit_codes.FATAL, *exit_codes.BYSTANDER],
                },
            }
        )
    rules.append({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]})
    return {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        # A pod that was only deleted must not be replaced while its peers go on: their collectives would hang.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules},
        "template": {
            "metadata": {"labels": {labels.RUN: spec.name}},
            "spec": _pod(spec),
        },
    }


def _pod(spec: TrainingSpec) -> Manifest:
    pool = spec.pool
    tolerations: list[Manifest] = [{"key": pool.resource, "operator": "Exists", "effect": "NoSchedule"}]
    if pool.spot:
        tolerations.append(
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        )
    for condition in ("not-ready", "unreachable"):
        tolerations.append(
            {
                "key": f"node.kubernetes.io/{condition}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": UNREACHABLE_SECONDS,
            }
        )
    pod: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": spec.trainer.grace_seconds,
        "nodeSelector": pool.node_labels(),
        "tolerations": tolerations,
        "containers": [_trainer(spec)],
        "volumes": [
            {"name": CHECKPOINT_VOLUME, "csi": {"driver": labels.CHECKPOINT_DRIVER}},
            {
                "name": POD_INFO_VOLUME,
                "downwardAPI": {
                    "items": [
                        {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}},
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    ]
                },
            },
        ],
    }
    if spec.priority is not None:
        pod["priorityClassName"] = spec.priority
    if spec.trainer.service_account is not None:
        pod["serviceAccountName"] = spec.trainer.service_account
    if not spec.trainer.uses_library:
        pod["initContainers"] = [_observer(spec)]
    return pod


def _trainer(spec: TrainingSpec) -> Manifest:
    asked = spec.trainer.resources
    requests = {key: value for key, value in (("cpu", asked.cpu), ("memory", asked.memory)) if value is not None}
    limits = {spec.pool.resource: str(spec.pool.chips_per_node)}
    if asked.memory is not None:
        limits["memory"] = asked.memory
    own = [{"name": name, "value": value} for name, value in sorted(spec.trainer.env.items())]
    return {
        "name": labels.TRAINER_CONTAINER,
        "image": spec.trainer.image,
        "command": list(spec.trainer.command),
        "env": _environment(spec) + own,
        "resources": {"requests": requests | {spec.pool.resource: limits[spec.pool.resource]}, "limits": limits},
        "volumeMounts": _mounts(spec),
    }


def _observer(spec: TrainingSpec) -> Manifest:
    """Return the native sidecar that reports for a script that speaks to the replicator by itself."""
    return {
        "name": labels.OBSERVER_CONTAINER,
        "image": spec.trainer.observer_image or spec.trainer.image,
        "command": ["python", "-m", "everstep_trainer.observer"],
        "restartPolicy": "Always",
        "env": _environment(spec),
        "volumeMounts": _mounts(spec),
    }


def _mounts(spec: TrainingSpec) -> list[Manifest]:
    return [
        {"name": CHECKPOINT_VOLUME, "mountPath": spec.checkpoints.local.directory},
        {"name": POD_INFO_VOLUME, "mountPath": POD_INFO_DIRECTORY, "readOnly": True},
    ]


def _environment(spec: TrainingSpec) -> list[Manifest]:
    checkpoints = spec.checkpoints
    durable = checkpoints.durable
    values = {
        "EVERSTEP_RUN": spec.name,
        "EVERSTEP_RUN_URL": f"gs://{spec.bucket}/{spec.name}",
        "EVERSTEP_LAUNCH": "0",
        "EVERSTEP_SLICES": str(spec.slices.count),
        "EVERSTEP_NODES_PER_SLICE": str(spec.pool.nodes_per_slice),
        "EVERSTEP_WORKERS_PER_NODE": "1",
        "EVERSTEP_DATA_PARALLELISM": str(spec.data_parallelism),
        "EVERSTEP_CHECKPOINT_DIR": checkpoints.local.directory,
        "EVERSTEP_LOCAL_EVERY_STEPS": str(checkpoints.local.every_steps),
        "EVERSTEP_BACKUP_EVERY_MINUTES": f"{checkpoints.backup.every_minutes:g}",
        "EVERSTEP_DURABLE_AT_END": "true" if durable.at_end else "false",
        "EVERSTEP_DURABLE_EVERY_HOURS": "" if durable.every_hours is None else f"{durable.every_hours:g}",
        "EVERSTEP_FINAL_STEP": "" if spec.final_step is None else str(spec.final_step),
        "EVERSTEP_FRAMEWORK": checkpoints.framework,
        "EVERSTEP_POD_INFO": POD_INFO_DIRECTORY,
        "EVERSTEP_HANDSHAKE_SECONDS": str(spec.trainer.handshake_seconds),
    }
    fields = {
        "EVERSTEP_RESTART_ATTEMPT": f"metadata.labels['{labels.RESTART_ATTEMPT}']",
        "EVERSTEP_SLICE_INDEX": f"metadata.labels['{labels.JOB_INDEX}']",
        "EVERSTEP_NODE_INDEX": f"metadata.annotations['{labels.COMPLETION_INDEX}']",
        "EVERSTEP_POD_NAME": "metadata.name",
        "EVERSTEP_NODE_NAME": "spec.nodeName",
    }
    return [{"name": name, "value": value} for name, value in values.items()] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]


def _containers(manifest: Manifest) -> list[Manifest]:
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return [*pod["containers"], *pod.get("initContainers", [])]
