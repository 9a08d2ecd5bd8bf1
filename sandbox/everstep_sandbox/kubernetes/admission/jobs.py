"""batch/v1 Jobs: defaults, generated selector, pod failure policy, what is immutable."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.admission.fields import forbidden, immutable, invalid, not_supported, required
from everstep_sandbox.kubernetes.admission.names import dns_1123_errors
from everstep_sandbox.kubernetes.admission.pod_specs import pod_spec_causes, set_pod_spec_defaults
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_ACTIONS = ["Count", "FailIndex", "FailJob", "Ignore"]
_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
# What a suspended job that has not started may still get: where its pods are to run.
_SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Raises ApiError 422 with all findings."""
    if resource.plural != "jobs" or subresource is not None:
        return
    spec = new.setdefault("spec", {})
    spec.setdefault("template", {}).setdefault("spec", {})
    _set_defaults(spec)
    if old is None:
        _set_selector(new)
        new["status"] = {}
    causes = _spec_causes(spec, new["metadata"]["name"])
    if old is not None:
        causes += _change_causes(spec, old)
    if causes:
        raise errors.invalid(resource, new["metadata"]["name"], causes)


def _set_defaults(spec: dict[str, Any]) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    template = spec["template"]["spec"]
    # A job takes no default restart policy: Never or OnFailure has to be said.
    said = template.get("restartPolicy")
    set_pod_spec_defaults(template)
    if said is None:
        del template["restartPolicy"]


def _set_selector(job: Object) -> None:
    spec, meta = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    spec["selector"] = {"matchLabels": {_UID_LABELS[0]: meta["uid"]}}
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels.update({label: meta["uid"] for label in _UID_LABELS})
    labels.update({label: meta["name"] for label in _NAME_LABELS})


def _spec_causes(spec: dict[str, Any], name: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        value = spec.get(field, 0)
        if not isinstance(value, int) or value < 0:
            causes.append(invalid(f"spec.{field}", value, "must be greater than or equal to 0"))
    if spec["completionMode"] == "Indexed":
        if "completions" not in spec:
            causes.append(required("spec.completions", "when completion mode is Indexed"))
        else:
            longest = f"{name}-{spec['completions'] - 1}"
            if dns_1123_errors(longest):
                why = f"will not able to create pod with invalid DNS label: {longest}"
                causes.append(invalid("metadata.name", longest, why))
    template = spec["template"]["spec"]
    policy = template.get("restartPolicy")
    if policy is None:
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif policy == "Always":
        causes.append(not_supported("spec.template.spec.restartPolicy", policy, ["OnFailure", "Never"]))
    causes += pod_spec_causes({"restartPolicy": "Never", **template}, "spec.template.spec")
    if spec.get("podFailurePolicy"):
        causes += _failure_policy_causes(spec, template)
    return causes


def _failure_policy_causes(spec: dict[str, Any], template: dict[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    if template.get("restartPolicy") != "Never":
        causes.append(
            invalid(
                "spec.template.spec.restartPolicy",
                template.get("restartPolicy"),
                'only "Never" is supported when podFailurePolicy is specified',
            )
        )
    if spec["podReplacementPolicy"] != "Failed":
        causes.append(not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], ["Failed"]))
    containers = {c.get("name") for c in [*(template.get("containers") or ()), *(template.get("initContainers") or ())]}
    for index, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        causes += _rule_causes(rule, containers, f"spec.podFailurePolicy.rules[{index}]")
    return causes


def _rule_causes(rule: dict[str, Any], containers: set[Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if not rule.get("action"):
        causes.append(required(f"{path}.action", f"valid values: {_ACTIONS}"))
    elif rule["action"] not in _ACTIONS:
        causes.append(not_supported(f"{path}.action", rule["action"], _ACTIONS))
    exit_codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if bool(exit_codes) == bool(conditions):
        found = "" if not exit_codes else rule
        why = (
            "specifying both OnExitCodes and OnPodConditions is not supported"
            if exit_codes
            else "specifying one of OnExitCodes and OnPodConditions is required"
        )
        return [*causes, invalid(path, found, why)]
    for index, pattern in enumerate(conditions or ()):
        if pattern.get("status") not in ("True", "False", "Unknown"):
            field = f"{path}.onPodConditions[{index}].status"
            causes.append(not_supported(field, pattern.get("status"), ["False", "True", "Unknown"]))
    if exit_codes:
        causes += _exit_code_causes(exit_codes, containers, f"{path}.onExitCodes")
    return causes


def _exit_code_causes(exit_codes: dict[str, Any], containers: set[Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    operator, values = exit_codes.get("operator"), exit_codes.get("values") or []
    if operator not in ("In", "NotIn"):
        causes.append(not_supported(f"{path}.operator", operator, ["In", "NotIn"]))
    name = exit_codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", name, why))
    if not values:
        causes.append(invalid(f"{path}.values", [], "at least one value is required"))
    elif len(values) > 255:
        why = f"Too many: {len(values)}: must have at most 255 items"
        causes.append(Cause(f"{path}.values", why, "FieldValueTooMany"))
    if values != sorted(values):
        causes.append(invalid(f"{path}.values", values, "must be ordered"))
    if len(set(values)) != len(values):
        causes.append(invalid(f"{path}.values", values, "must be unique"))
    if operator == "In" and 0 in values:
        causes.append(invalid(f"{path}.values[{values.index(0)}]", 0, "must not be 0 for the In operator"))
    return causes


def _change_causes(spec: dict[str, Any], old: Object) -> list[Cause]:
    before = old["spec"]
    causes: list[Cause] = []
    resized_together = spec["completionMode"] == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if spec.get("completions") != before.get("completions") and not resized_together:
        causes += immutable("spec.completions", before.get("completions"), spec.get("completions"))
    for field in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"):
        causes += immutable(f"spec.{field}", before.get(field), spec.get(field))
    template, old_template = clone(spec["template"]), clone(before["template"])
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        for part in (template, old_template):
            for field in _SCHEDULING_FIELDS:
                part["spec"].pop(field, None)
            part.pop("metadata", None)
    if template != old_template:
        if template["spec"] != old_template["spec"]:
            causes.append(invalid("spec.template.spec", spec["template"]["spec"], "field is immutable"))
        else:
            causes.append(invalid("spec.template", spec["template"], "field is immutable"))
    if before["podReplacementPolicy"] != spec["podReplacementPolicy"] and before.get("podFailurePolicy"):
        causes.append(forbidden("spec.podReplacementPolicy", "may not be changed with a podFailurePolicy"))
    return causes
