"""What the hollow kubelet says of pods and nodes. Pure."""

from __future__ import annotations

import datetime
import time

from tests.conformance.api import Object


def running(pod: Object, address: str) -> Object:
    """The status of a pod all of whose containers run and are ready."""
    now = timestamp()
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    held = ("Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")
    return {
        "phase": "Running",
        "startTime": now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in held],
        "containerStatuses": containers,
    }


def ended(pod: Object, exit_code: int) -> Object:
    """The status of a pod all of whose containers have ended with this exit code."""
    now = timestamp()
    status = pod.get("status") or {}
    started = status.get("startTime") or now
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": False,
            "started": False,
            "state": {
                "running": None,
                "terminated": {
                    "exitCode": exit_code,
                    "reason": "Error" if exit_code else "Completed",
                    "startedAt": started,
                    "finishedAt": now,
                },
            },
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": [
            {"type": kind, "status": "False", "reason": "PodFailed" if exit_code else "PodCompleted"}
            for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": containers,
    }


def ready(reason: str, status: str) -> Object:
    """The condition Ready of a node."""
    now = timestamp()
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def timestamp() -> str:
    """Now, in whole seconds."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time() -> str:
    """Now, in microseconds, as leases have it."""
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
