"""The status that a pod's containers add up to. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(slots=True)
class ContainerState:
    """What is known of one container; times are UTC."""

    name: str
    image: str = ""
    restarts: int = 0
    waiting: str = "PodInitializing"
    """Reason, while it is neither running nor terminated."""
    message: str = ""
    container_id: str = ""
    started_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    exit_code: int | None = None
    terminated_reason: str = ""
    terminated_message: str = ""
    last: Object = field(default_factory=dict)
    """The terminated state of the run before this one."""
    started: bool = False
    """Running, and its startup probe (if any) has succeeded."""
    ready: bool = False

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.exit_code is None

    def start(self, container_id: str, now: datetime.datetime) -> None:
        self.waiting = self.message = ""
        self.container_id, self.started_at = container_id, now
        self.finished_at = self.exit_code = None
        self.terminated_reason = self.terminated_message = ""

    def terminate(self, exit_code: int, now: datetime.datetime, *, reason: str = "", message: str = "") -> None:
        self.exit_code, self.finished_at = exit_code, now
        self.terminated_reason = reason or ("Completed" if exit_code == 0 else "Error")
        self.terminated_message = message
        self.started = self.ready = False

    def back_off(self, reason: str, message: str = "") -> None:
        """From terminated to waiting for the next run."""
        if self.exit_code is not None:
            self.last = self._state()
        self.waiting, self.message = reason, message
        self.started_at = self.finished_at = self.exit_code = None

    def as_status(self) -> Object:
        status: Object = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": self.container_id,
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
            "state": self._state(),
            "lastState": self.last,
        }
        return status

    def _state(self) -> Object:
        if self.exit_code is not None:
            ended: Object = {
                "exitCode": self.exit_code,
                "reason": self.terminated_reason,
                "startedAt": _time(self.started_at),
                "finishedAt": _time(self.finished_at),
                "containerID": self.container_id,
            }
            if self.terminated_message:
                ended["message"] = self.terminated_message
            return {"terminated": ended}
        if self.started_at is not None:
            return {"running": {"startedAt": _time(self.started_at)}}
        waiting: Object = {"reason": self.waiting or "ContainerCreating"}
        if self.message:
            waiting["message"] = self.message
        return {"waiting": waiting}


def is_sidecar(container: Object) -> bool:
    """A native sidecar: an init container that runs beside the main ones and does not keep the pod alive."""
    return container.get("restartPolicy") == "Always"


def phase(pod: Object, init: Mapping[str, ContainerState], main: Mapping[str, ContainerState], *, ended: bool) -> str:
    """The pod's phase. `ended` says that no container will be started again (as on deletion)."""
    policy = pod["spec"].get("restartPolicy", "Always")
    for container in pod["spec"].get("initContainers") or ():
        state = init[container["name"]]
        if is_sidecar(container):
            continue
        if state.exit_code not in (0, None) and (policy == "Never" or ended):
            return "Failed"
        if state.exit_code is None:
            return "Failed" if ended else "Pending"
    codes = [state.exit_code for state in main.values()]
    if any(state.is_running for state in init.values()) and any(code is not None for code in codes):
        # A sidecar that is still to be stopped keeps its pod from ending.
        return "Running"
    if all(code is not None for code in codes):
        if ended or policy == "Never" or (policy == "OnFailure" and not any(codes)):
            return "Failed" if any(codes) else "Succeeded"
        return "Running"
    if ended:
        return "Failed"
    return "Running" if any(state.started_at or state.restarts for state in main.values()) else "Pending"


def conditions(
    pod: Object,
    init: Mapping[str, ContainerState],
    main: Mapping[str, ContainerState],
    pod_phase: str,
    previous: Sequence[Object],
    now: datetime.datetime,
    *,
    sandbox_ready: bool,
) -> list[Object]:
    """The conditions that the kubelet owns, with the transition times of those that did not change."""
    containers = pod["spec"].get("initContainers") or ()
    pending = [
        container["name"]
        for container in containers
        if not (init[container["name"]].started if is_sidecar(container) else init[container["name"]].exit_code == 0)
    ]
    initialized = not pending or pod_phase in ("Running", "Succeeded")
    running = [*main.values(), *(init[container["name"]] for container in containers if is_sidecar(container))]
    unready = [state.name for state in running if not state.ready]
    ready_reason, ready_text = "", ""
    if pod_phase == "Succeeded":
        ready_reason = "PodCompleted"
    elif pod_phase == "Failed":
        ready_reason = "PodFailed"
    elif unready:
        ready_reason, ready_text = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    init_reason = "PodCompleted" if pod_phase == "Succeeded" else ""
    init_text = ""
    if not initialized:
        init_reason = "ContainersNotInitialized"
        init_text = f"containers with incomplete status: [{' '.join(pending)}]"
    is_ready = not ready_reason and initialized
    if not initialized and not ready_reason:
        ready_reason, ready_text = "ContainersNotReady", init_text
    wanted = [
        _condition("PodReadyToStartContainers", sandbox_ready and pod_phase in ("Pending", "Running")),
        _condition("Initialized", initialized, init_reason, init_text),
        _condition("Ready", is_ready, ready_reason, ready_text),
        _condition("ContainersReady", is_ready, ready_reason, ready_text),
    ]
    known = {condition["type"]: condition for condition in previous}
    for condition in wanted:
        before = known.get(condition["type"])
        unchanged = before is not None and before["status"] == condition["status"]
        condition["lastTransitionTime"] = before["lastTransitionTime"] if before and unchanged else _time(now)
    return wanted


def _condition(kind: str, value: bool, reason: str = "", message: str = "") -> Object:
    condition: Object = {"type": kind, "status": "True" if value else "False", "lastProbeTime": None}
    # A strategic merge keeps fields that a patch leaves out: null removes those of an earlier state.
    condition["reason"] = reason or None
    condition["message"] = message or None
    return condition


def _time(moment: datetime.datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None
