"""Pod specs, on their own and in templates: defaults and validation."""

from __future__ import annotations

import re
from typing import Any

from everstep_sandbox.kubernetes.admission.fields import duplicate, invalid, not_found, not_supported, required
from everstep_sandbox.kubernetes.admission.names import dns_1123_errors
from everstep_sandbox.kubernetes.errors import Cause

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_RESTART_POLICIES = ["Always", "OnFailure", "Never"]


def set_pod_spec_defaults(spec: dict[str, Any]) -> None:
    """The defaults that the API fills into every pod spec."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    write_quantities_as_text(spec)
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _set_container_defaults(container)


def write_quantities_as_text(spec: dict[str, Any]) -> None:
    """Amounts of resources may be given as numbers; the API always gives them back as text."""
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                amounts.update({name: str(amount) for name, amount in amounts.items()})


def _set_container_defaults(container: dict[str, Any]) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
        container["imagePullPolicy"] = "Always" if tag in ("", "latest") else "IfNotPresent"
    resources = container.setdefault("resources", {})
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in resources["limits"].items():
            requests.setdefault(name, amount)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def pod_spec_causes(spec: Any, path: str) -> list[Cause]:
    """All findings about a pod spec."""
    if not isinstance(spec, dict):
        return [required(path)]
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        causes.append(not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES))
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if not isinstance(grace, int) or grace < 0:
        causes.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        causes += _name_causes(volume, volumes, f"{path}.volumes[{index}].name")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            causes += _name_causes(container, names, f"{where}.name")
            causes += _container_causes(container, volumes, where)
    return causes


def _name_causes(item: dict[str, Any], taken: set[str], path: str) -> list[Cause]:
    name = item.get("name")
    if not name:
        return [required(path)]
    if name in taken:
        return [duplicate(path, name)]
    taken.add(name)
    return [invalid(path, name, text) for text in dns_1123_errors(name)]


def _container_causes(container: dict[str, Any], volumes: set[str], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, variable in enumerate(container.get("env") or ()):
        where = f"{path}.env[{index}]"
        if not variable.get("name"):
            causes.append(required(f"{where}.name"))
        if "value" in variable and not isinstance(variable["value"], str):
            causes.append(invalid(f"{where}.value", variable["value"], "expected a string"))
        if variable.get("value") and variable.get("valueFrom"):
            causes.append(invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty"))
    mounted: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("mountPath"):
            causes.append(required(f"{where}.mountPath"))
        elif mount["mountPath"] in mounted:
            causes.append(invalid(f"{where}.mountPath", mount["mountPath"], "must be unique"))
        mounted.add(mount.get("mountPath", ""))
        if mount.get("name") not in volumes:
            causes.append(not_found(f"{where}.name", mount.get("name")))
    return causes + _resource_causes(container.get("resources") or {}, f"{path}.resources")


def _resource_causes(resources: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("limits", "requests"):
        for name, amount in (resources.get(field) or {}).items():
            if not _QUANTITY.fullmatch(str(amount)):
                causes.append(invalid(f"{path}.{field}[{name}]", amount, _QUANTITY_RULE))
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in requests.items():
        is_extended = "/" in name and not name.startswith("kubernetes.io/")
        if is_extended and name not in limits:
            causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif is_extended and str(limits[name]) != str(amount):
            causes.append(invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}"))
    return causes
