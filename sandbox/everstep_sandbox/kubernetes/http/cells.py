"""Cells of the tables that kubectl prints: what one column shows of one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep_sandbox.kubernetes.objects import Object, now, parse_timestamp

NONE = "<none>"
UNKNOWN = "<unknown>"


def human_duration(seconds: float) -> str:
    """kubectl's short form of a duration: 95s, 5m30s, 42m, 3h5m, 30h, 3d4h, 20d, 2y30d."""
    total = int(seconds)
    if total < 0:
        return "0s" if total > -2 else "<invalid>"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _since(text: str | None) -> str:
    if not text:
        return UNKNOWN
    return human_duration((now() - parse_timestamp(text)).total_seconds())


def name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def age(obj: Object) -> str:
    return _since(obj["metadata"].get("creationTimestamp"))


def value_at(*path: str, default: Any = NONE) -> Callable[[Object], Any]:
    """A cell that shows the value at a path."""

    def cell(obj: Object) -> Any:
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None or found == "" else found

    return cell


def _condition(obj: Object, kind: str) -> dict[str, Any] | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def _condition_is_true(obj: Object, kind: str) -> bool:
    return (_condition(obj, kind) or {}).get("status") == "True"


def pod_ready(pod: Object) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    ready = sum(1 for status in statuses if status.get("ready") and "running" in (status.get("state") or {}))
    sidecars = [c["name"] for c in pod["spec"].get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for status in pod.get("status", {}).get("initContainerStatuses") or ():
        ready += status["name"] in sidecars and bool(status.get("ready"))
    return f"{ready}/{len(pod['spec'].get('containers') or ()) + len(sidecars)}"


def pod_status(pod: Object) -> str:
    """The word that kubectl shows for a pod: the most telling of its phase, reasons and container states."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    initializing = _init_reason(pod)
    if initializing:
        reason = initializing
    else:
        for container in reversed(status.get("containerStatuses") or ()):
            reason = _container_reason(container) or reason
        if reason == "Completed" and any(
            "running" in (container.get("state") or {}) for container in status.get("containerStatuses") or ()
        ):
            reason = "Running" if _condition_is_true(pod, "Ready") else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _container_reason(container: dict[str, Any]) -> str | None:
    state = container.get("state") or {}
    if waiting := state.get("waiting"):
        return str(waiting["reason"]) if waiting.get("reason") else None
    if terminated := state.get("terminated"):
        if terminated.get("reason"):
            return str(terminated["reason"])
        if terminated.get("signal"):
            return f"Signal:{terminated['signal']}"
        return f"ExitCode:{terminated.get('exitCode', 0)}"
    return None


def _init_reason(pod: Object) -> str | None:
    """`Init:1/2` and the like while init containers hold the pod back; None once they don't."""
    specs = pod["spec"].get("initContainers") or []
    sidecars = {container["name"] for container in specs if container.get("restartPolicy") == "Always"}
    for index, container in enumerate((pod.get("status") or {}).get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode") == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if terminated:
            return f"Init:{_container_reason(container)}"
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(specs)}"
    return None


def pod_restarts(pod: Object) -> str:
    return str(sum(s.get("restartCount", 0) for s in pod.get("status", {}).get("containerStatuses") or ()))


def node_status(node: Object) -> str:
    ready = _condition(node, "Ready")
    words = ["Ready" if ready and ready.get("status") == "True" else "NotReady" if ready else "Unknown"]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def node_address(kind: str) -> Callable[[Object], str]:
    def cell(node: Object) -> str:
        addresses = node.get("status", {}).get("addresses") or ()
        return next((str(item["address"]) for item in addresses if item.get("type") == kind), NONE)

    return cell


def job_status(job: Object) -> str:
    if _condition_is_true(job, "Complete"):
        return "Complete"
    if _condition_is_true(job, "Failed"):
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _condition_is_true(job, "Suspended"):
        return "Suspended"
    return "FailureTarget" if _condition_is_true(job, "FailureTarget") else "Running"


def job_completions(job: Object) -> str:
    wanted = job["spec"].get("completions")
    if wanted is None:
        wanted = f"1 of {job['spec'].get('parallelism', 1)}"
    return f"{job.get('status', {}).get('succeeded', 0)}/{wanted}"


def job_duration(job: Object) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = parse_timestamp(status["completionTime"]) if status.get("completionTime") else now()
    return human_duration((end - parse_timestamp(status["startTime"])).total_seconds())


def event_last_seen(event: Object) -> str:
    series = event.get("series") or {}
    return _since(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime"))


def event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def completed(jobset: Object) -> str:
    return str((_condition(jobset, "Completed") or {}).get("status", ""))


def pairs_at(*path: str) -> Callable[[Object], str]:
    read = value_at(*path, default=None)

    def cell(obj: Object) -> str:
        found = read(obj)
        return ",".join(f"{key}={value}" for key, value in sorted(found.items())) if found else NONE

    return cell


def ports(service: Object) -> str:
    ports = service.get("spec", {}).get("ports") or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or NONE
