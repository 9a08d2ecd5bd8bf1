"""The environment and the command line of a container."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from everstep_sandbox.kubelet.rewriting import Rewriter, expand

Object = dict[str, Any]
Lookup = Callable[[str, str], Mapping[str, str] | None]
"""(configmaps or secrets, name) -> its data as text, None where it does not exist."""


class ConfigError(Exception):
    """The container can't be made from its spec (Kubernetes: CreateContainerConfigError)."""


def field_value(pod: Object, path: str) -> str:
    """The value of a fieldRef, from the pod with its node and addresses filled in; raises ConfigError."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    for family in ("labels", "annotations"):
        prefix = f"metadata.{family}['"
        if path.startswith(prefix) and path.endswith("']"):
            return str((metadata.get(family) or {}).get(path[len(prefix) : -2], ""))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path not in values:
        raise ConfigError(
            f"fieldRef {path!r} is not known here; known are {', '.join(sorted(values))}, "
            "metadata.labels['…'] and metadata.annotations['…']"
        )
    return str(values[path])


def declared(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """The variables that the container's spec declares, expanded in order; raises ConfigError."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for family, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference := source.get(key):
                data = lookup(family, reference["name"])
                if data is None and not reference.get("optional"):
                    raise ConfigError(f'{family[:-1]} "{reference["name"]}" not found')
                found.update({source.get("prefix", "") + name: value for name, value in (data or {}).items()})
    for variable in container.get("env") or ():
        value = _value(pod, variable, found, lookup)
        if value is not None:
            found[variable["name"]] = value
    return found


def _value(pod: Object, variable: Object, so_far: Mapping[str, str], lookup: Lookup) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return expand(str(variable.get("value") or ""), so_far)
    if reference := source.get("fieldRef"):
        return field_value(pod, reference["fieldPath"])
    for family, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if reference := source.get(key):
            data = lookup(family, reference["name"])
            if data is None or reference["key"] not in data:
                if reference.get("optional"):
                    return None
                raise ConfigError(f"couldn't find key {reference['key']} in {family[:-1]} {reference['name']}")
            return data[reference["key"]]
    raise ConfigError(
        f"the source of variable {variable['name']} is not supported: {', '.join(source)}; "
        "use value, fieldRef, configMapKeyRef or secretKeyRef"
    )


def base(pod: Object, home: Path) -> dict[str, str]:
    """What an image and the runtime give a container: a search path with our interpreter first, a home."""
    interpreter = Path(sys.executable).parent
    return {
        "PATH": f"{interpreter}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "HOSTNAME": (pod["spec"].get("hostname") or pod["metadata"]["name"])[:63],
        # Logs are followed while the container runs; a pipe would be buffered otherwise.
        "PYTHONUNBUFFERED": "1",
    }


def command_line(container: Object, variables: Mapping[str, str], rewriter: Rewriter) -> list[str]:
    """command + args, expanded and rewritten; `python` becomes the interpreter that runs the sandbox."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise ConfigError(
            f"container {container['name']} has no command: the sandbox runs no images, "
            "so the command that the image would run must be given"
        )
    words = [rewriter.text(expand(str(word), variables)) for word in words]
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    return words
