"""JobSet's webhooks (v0.11) and the rules of its CRD: defaults, names that fit, what may not change."""

from __future__ import annotations

import re
from typing import Any

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.admission.fields import immutable, shown
from everstep_sandbox.kubernetes.admission.names import TOO_LONG_LABEL, dns_1035_errors, label_value_errors
from everstep_sandbox.kubernetes.admission.pod_specs import write_quantities_as_text
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

WEBHOOK = "vjobset.kb.io"

_SPEC_RULES_OF_CRD = ("network", "successPolicy", "failurePolicy", "startupPolicy", "volumeClaimPolicies")
_FAILURE_REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_RULE_NAME = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_JOB_NAME_TOO_LONG = "JobSet name is too long, job names generated for this JobSet will exceed 63 characters"
_POD_NAME_TOO_LONG = "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters"
_SUBDOMAIN_TOO_LONG = ".spec.network.subdomain is too long, must be less than 63 characters"
# Kueue sets these while the JobSet is suspended.
_MUTABLE_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates")


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Raises ApiError: 422 from the CRD's rules, 403 from the webhook, each with all findings."""
    if resource.plural != "jobsets" or subresource is not None:
        return
    spec = new.setdefault("spec", {})
    name = new["metadata"]["name"]
    if old is None:
        _set_defaults(spec)
        _require_fields(resource, name, spec)
        new.pop("status", None)
        _deny(_creation_findings(spec, name))
    else:
        _require_fields(resource, name, spec)
        _refuse_by_crd(resource, name, spec, old["spec"])
        _deny(_change_findings(spec, old["spec"]))


def _deny(findings: list[str]) -> None:
    if findings:
        raise errors.webhook_denied(WEBHOOK, "\n".join(findings))


def _require_fields(resource: Resource, name: str, spec: dict[str, Any]) -> None:
    causes = []
    for index, replicated in enumerate(spec.get("replicatedJobs") or ()):
        path = f"spec.replicatedJobs[{index}]"
        if not replicated.get("name"):
            causes.append(Cause(f"{path}.name", "Required value", "FieldValueRequired"))
        if not ((replicated.get("template") or {}).get("spec") or {}).get("template"):
            causes.append(Cause(f"{path}.template.spec.template", "Required value", "FieldValueRequired"))
    names = [replicated.get("name") for replicated in spec.get("replicatedJobs") or ()]
    for index, found in enumerate(names):
        if found in names[:index]:
            causes.append(
                Cause(
                    f"spec.replicatedJobs[{index}]",
                    f'Duplicate value: {{"name":{shown(found)}}}',
                    "FieldValueDuplicate",
                )
            )
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        causes += [
            Cause(f"spec.failurePolicy.rules[{index}].{field}", "Required value", "FieldValueRequired")
            for field in ("name", "action")
            if not rule.get(field)
        ]
    if causes:
        raise errors.invalid(resource, name, causes)


def _set_defaults(spec: dict[str, Any]) -> None:
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec.get("replicatedJobs") or ():
        job = replicated.setdefault("template", {}).setdefault("spec", {})
        job.setdefault("completionMode", "Indexed")
        if job.get("template"):
            pod = job["template"].setdefault("spec", {})
            pod.setdefault("restartPolicy", "OnFailure")
            write_quantities_as_text(pod)
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        if not rule.get("name"):
            rule["name"] = f"failurePolicyRule{index}"


def _creation_findings(spec: dict[str, Any], name: str) -> list[str]:
    findings: list[str] = []
    subdomain = spec["network"].get("subdomain")
    if subdomain:
        for text in dns_1035_errors(subdomain):
            why = _SUBDOMAIN_TOO_LONG if text == TOO_LONG_LABEL else text
            findings.append(f"spec.network.subdomain: Invalid value: {shown(subdomain)}: {why}")
    replicated_jobs = spec.get("replicatedJobs") or []
    names = [replicated["name"] for replicated in replicated_jobs]
    if replicated_jobs and replicated_jobs[0].get("dependsOn") is not None:
        findings.append("DependsOn can't be set for the first ReplicatedJob")
    for index, replicated in enumerate(replicated_jobs):
        findings += _name_findings(name, replicated, f"spec.replicatedJobs[{index}].name")
        for dependency in replicated.get("dependsOn") or ():
            if dependency["name"] not in names[: index + 1]:
                findings.append(
                    f"replicatedJob: {replicated['name']} cannot depend on replicatedJob: {dependency['name']}"
                )
    for target in spec["successPolicy"].get("targetReplicatedJobs") or ():
        if target not in names:
            findings.append(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
    if spec.get("failurePolicy"):
        findings += _failure_policy_findings(spec["failurePolicy"], names)
    if spec.get("coordinator"):
        findings += _coordinator_findings(spec, name)
    return findings


def _name_findings(jobset: str, replicated: dict[str, Any], path: str) -> list[str]:
    """The longest job and pod names that this replicated job will give have to be DNS labels."""
    job_name = f"{jobset}-{replicated['name']}-{replicated['replicas'] - 1}"
    findings = [
        f"{path}: Invalid value: {shown(job_name)}: {_JOB_NAME_TOO_LONG if text == TOO_LONG_LABEL else text}"
        for text in dns_1035_errors(job_name)
    ]
    job = replicated["template"]["spec"]
    if job.get("completionMode") == "Indexed" and job.get("completions") is not None:
        pod_name = f"{job_name}-{job['completions'] - 1}-abcde"
        findings += [
            f"{path}: Invalid value: {shown(job_name)}: {_POD_NAME_TOO_LONG if text == TOO_LONG_LABEL else text}"
            for text in dns_1035_errors(pod_name)
        ]
    return findings


def _failure_policy_findings(policy: dict[str, Any], names: list[str]) -> list[str]:
    findings: list[str] = []
    if policy.get("restartStrategy") == "InPlaceRestart":
        findings.append("InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled")
    rules = policy.get("rules") or []
    for rule in rules:
        if rule["name"] and not _RULE_NAME.fullmatch(rule["name"]):
            findings.append(
                f"invalid failure policy rule name '{rule['name']}', a failure policy rule name must start with an "
                "alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must "
                "end with an alphanumeric character or '_'"
            )
        if rule.get("action") in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
            findings.append(
                "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob "
                "feature gate is disabled"
            )
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in names:
                findings.append(
                    f"invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
                )
        for reason in rule.get("onJobFailureReasons") or ():
            if reason not in _FAILURE_REASONS:
                findings.append(
                    f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
                )
    for rule_name in sorted({rule["name"] for rule in rules}):
        having = [index for index, rule in enumerate(rules) if rule["name"] == rule_name]
        if len(having) > 1:
            listed = " ".join(map(str, having))
            findings.append(
                f"rule names are not unique, rules with indices [{listed}] all have the same name '{rule_name}'"
            )
    return findings


def _coordinator_findings(spec: dict[str, Any], name: str) -> list[str]:
    coordinator = spec["coordinator"]
    wanted = coordinator.get("replicatedJob", "")
    found = next((item for item in spec.get("replicatedJobs") or () if item["name"] == wanted), None)
    if found is None:
        return [f"coordinator replicatedJob {wanted} does not exist"]
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    if not 0 <= job_index < found["replicas"]:
        return [f"coordinator job index {job_index} is invalid for replicatedJob {wanted}"]
    job = found["template"]["spec"]
    if job.get("completionMode") != "Indexed" or job.get("completions") is None:
        return ["job for coordinator pod must be indexed completion mode, and completions number must be set"]
    if not 0 <= pod_index < job["completions"]:
        return [f"coordinator pod index {pod_index} is invalid for replicatedJob {wanted} job index {job_index}"]
    subdomain = spec["network"].get("subdomain") or name
    endpoint = f"{name}-{wanted}-{job_index}-{pod_index}.{subdomain}"
    return [
        f'spec will lead to invalid label value "{endpoint}" for coordinator label "jobset.sigs.k8s.io/coordinator" '
        f"(long JobSet / ReplicatedJob / SubDomain name?): {text}"
        for text in label_value_errors(endpoint)
    ]


def _refuse_by_crd(resource: Resource, name: str, spec: dict[str, Any], old: dict[str, Any]) -> None:
    """Transition rules of the schema; they only apply to fields that are there before and after."""
    causes = [
        Cause(f"spec.{field}", "Invalid value: Value is immutable")
        for field in _SPEC_RULES_OF_CRD
        if field in spec and field in old and spec[field] != old[field]
    ]
    if causes:
        raise errors.invalid(resource, name, causes)


def _change_findings(spec: dict[str, Any], old: dict[str, Any]) -> list[str]:
    compared = clone(spec.get("replicatedJobs") or [])
    before = {replicated["name"]: replicated for replicated in old.get("replicatedJobs") or ()}
    if old.get("suspend") or spec.get("suspend"):
        for replicated in compared:
            if replicated.get("name") in before:
                _take_mutable_parts(replicated, before[replicated["name"]])
    causes = immutable("spec.replicatedJobs", old.get("replicatedJobs") or [], compared)
    causes += immutable("spec.managedBy", old.get("managedBy"), spec.get("managedBy"))
    return [f"{cause.field}: {cause.message}" for cause in causes]


def _take_mutable_parts(new: dict[str, Any], old: dict[str, Any]) -> None:
    template, before = new["template"]["spec"]["template"], old["template"]["spec"]["template"]
    for part, before_part, fields in (
        (template.setdefault("metadata", {}), before.get("metadata") or {}, ("annotations", "labels")),
        (template["spec"], before["spec"], _MUTABLE_WHILE_SUSPENDED),
    ):
        for field in fields:
            if field in before_part:
                part[field] = before_part[field]
            else:
                part.pop(field, None)
    if not template["metadata"] and "metadata" not in before:
        del template["metadata"]
