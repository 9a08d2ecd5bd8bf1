"""Nodes and pods that KWOK simulates on a real control plane: pods run until somebody says how they ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.api_server import MERGE_PATCH, ApiServer, Object, in_threads

from everstep_sandbox.controlplane import programs
from everstep_sandbox.stack import parts

NODES = 36
PODS_PER_NODE = 256
# A node is well, a pod runs as soon as it has a node, and is gone as soon as it is deleted. No pod ends by itself.
_NODE_STATUS = """
{{ $now := Now }}
conditions:
- {type: Ready, status: "True", reason: Simulated, message: "", lastHeartbeatTime: {{ $now | Quote }},
   lastTransitionTime: {{ $now | Quote }}}
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
"""
_POD_STATUS = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- {name: {{ .name | Quote }}, image: {{ .image | Quote }}, ready: true, started: true, restartCount: 0,
   state: {running: {startedAt: {{ $now | Quote }}}}}
{{ end }}
"""


@contextmanager
def simulated_nodes(api: ApiServer, directory: Path) -> Iterator[None]:
    """Start KWOK and give the cluster nodes for 9,216 pods."""
    stages = directory / "stages.json"
    stages.write_text("\n---\n".join(json.dumps(stage) for stage in _stages()))
    program = os.fspath(programs.find().path("kwok"))
    options = ["--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--node-ip=127.0.0.1"]
    part = parts.start_program(
        directory, "kwok", program, f"--kubeconfig={api.kubeconfig}", f"--config={stages}", *options
    )
    try:
        in_threads(lambda number: api.call("POST", "/api/v1/nodes", _node(number)), NODES)
        deadline = time.monotonic() + 60
        while not all(_is_ready(node) for node in api.call("GET", "/api/v1/nodes")["items"]):
            if not part.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"KWOK makes no nodes ready; its log ends with:\n{parts.log_end(part.log)}")
            time.sleep(0.5)
        yield
    finally:
        part.process.terminate()
        part.end_by(time.monotonic() + 10)


def end_pod(api: ApiServer, pod: Object, exit_code: int) -> None:
    """Let a pod's only container end."""
    container = pod["spec"]["containers"][0]
    status = {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}},
            }
        ],
    }
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
    api.call("PATCH", path, {"status": status}, MERGE_PATCH)


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _node(number: int) -> Object:
    capacity = {"cpu": "1000", "memory": "1Ti", "pods": str(PODS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"simulated-{number:03}"},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _stages() -> list[Object]:
    living = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    not_ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "NotIn",
        "values": ["True"],
    }
    pending = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
    deleted = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    return [
        _stage("node-well", "Node", [not_ready], {"statusTemplate": _NODE_STATUS}),
        _stage("pod-runs", "Pod", [living, pending, not_ready], {"statusTemplate": _POD_STATUS}),
        _stage("pod-gone", "Pod", [deleted], {"delete": True}),
    ]


def _stage(name: str, kind: str, expressions: list[Object], then: Object) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": then,
        },
    }
