"""Pods at admission: defaults, priority from the class, service account, default tolerations; what may change later."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.admission.fields import forbidden
from everstep_sandbox.kubernetes.admission.pod_specs import pod_spec_causes, set_pod_spec_defaults
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_CONDITION_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATION_SECONDS = 300
_MUTABLE_FIELDS = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), "
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_TEMPLATED = frozenset({"daemonsets", "deployments", "replicasets", "statefulsets"})


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Admits pods and the pod templates of apps/v1. Raises ApiError 403 or 422 with all findings."""
    if resource.plural in _TEMPLATED:
        template = new.setdefault("spec", {}).setdefault("template", {})
        set_pod_spec_defaults(template.setdefault("spec", {}))
        _refuse(resource, new, pod_spec_causes(template["spec"], "spec.template.spec"))
    if resource.plural != "pods":
        return
    if old is None:
        _admit_new(store, resource, new)
    elif subresource is None:
        _refuse(resource, new, _change_causes(new["spec"], old["spec"]))


def _admit_new(store: Store, resource: Resource, pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    set_pod_spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    _set_service_account(store, resource, pod)
    _set_priority(store, resource, pod)
    _set_default_tolerations(spec)
    _refuse(resource, pod, pod_spec_causes(spec, "spec"))
    pod["status"] = {"phase": "Pending", "qosClass": _quality_of_service(spec)}


def _refuse(resource: Resource, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise errors.invalid(resource, str(obj["metadata"].get("name", "")), causes)


def _set_service_account(store: Store, resource: Resource, pod: Object) -> None:
    """Every namespace has a service account `default`, stored or not; others have to exist."""
    spec = pod["spec"]
    namespace = pod["metadata"]["namespace"]
    name = spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = name
    if name != "default" and store.peek("serviceaccounts", namespace, name) is None:
        raise errors.forbidden(
            resource,
            _asked_name(pod),
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
        )


def _asked_name(pod: Object) -> str:
    """The pod's name as far as mutating admission knows it: the rest is generated after it."""
    meta = pod["metadata"]
    return str(meta.get("generateName") or meta["name"])


def _set_priority(store: Store, resource: Resource, pod: Object) -> None:
    spec, name = pod["spec"], _asked_name(pod)
    class_name = spec.get("priorityClassName")
    if class_name:
        found = store.peek("priorityclasses", None, class_name)
        if found is None:
            raise errors.forbidden(resource, name, f"no PriorityClass with name {class_name} was found")
    else:
        found = next((item for item in store.list("priorityclasses") if item.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = int(found["value"]) if found is not None else 0
    if spec.get("priority") not in (None, value):
        raise errors.forbidden(
            resource,
            name,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    policy = found.get("preemptionPolicy") if found is not None else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")


def _set_default_tolerations(spec: dict[str, Any]) -> None:
    """Nodes that are not ready or unreachable are tolerated for five minutes unless the pod says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for taint in _CONDITION_TAINTS:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS,
                }
            )


def _tolerates(toleration: dict[str, Any], taint: str) -> bool:
    return toleration.get("key") in (taint, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def _quality_of_service(spec: dict[str, Any]) -> str:
    resources = [container.get("resources") or {} for container in spec.get("containers") or ()]
    if not any(item.get("requests") or item.get("limits") for item in resources):
        return "BestEffort"
    guaranteed = all(
        (item.get("limits") or {}).get(name)
        and (item.get("limits") or {}).get(name) == (item.get("requests") or {}).get(name)
        for item in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _change_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Once made, a pod can hardly change: images, added tolerations, a deadline."""
    allowed = clone(new)
    for field in ("containers", "initContainers"):
        for container, before in zip(allowed.get(field) or (), old.get(field) or (), strict=False):
            container["image"] = before.get("image")
    kept = old.get("tolerations") or []
    mutable = ["activeDeadlineSeconds"]
    if all(toleration in (new.get("tolerations") or []) for toleration in kept):
        mutable.append("tolerations")
    for field in mutable:
        if field in old:
            allowed[field] = old[field]
        else:
            allowed.pop(field, None)
    return [] if allowed == old else [forbidden("spec", _MUTABLE_FIELDS)]
