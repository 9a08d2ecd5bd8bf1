"""The JobSet that a spec becomes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from everstep.launch import exit_codes, labels, manifest
from everstep.spec import ClusterSpec, TrainingSpec
from everstep_trainer.exit_codes import ExitCode


@pytest.fixture
def spec(run_data: dict[str, Any], cluster_data: dict[str, Any]) -> TrainingSpec:
    return TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))


def pod(jobset: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_it_is_one_replicated_job_placed_exclusively_with_the_checkpoint_volume(spec: TrainingSpec) -> None:
    jobset = manifest.build(spec, launch=3, holder="h")
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (replicated["name"], replicated["replicas"], job["parallelism"], job["completions"]) == ("slice", 2, 2, 2)
    assert (job["backoffLimit"], job["completionMode"], job["podReplacementPolicy"]) == (0, "Indexed", "Failed")
    assert jobset["metadata"]["annotations"][labels.EXCLUSIVE_TOPOLOGY] == "cloud.google.com/gke-nodepool"
    body = pod(jobset)
    assert body["volumes"][0]["csi"]["driver"] == "multitier-checkpoint.csi.storage.gke.io"
    assert body["containers"][0]["volumeMounts"][0] == {"name": "checkpoint", "mountPath": "/local"}
    assert body["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert body["priorityClassName"] == "training-high"
    assert body["restartPolicy"] == "Never"
    seconds = {each["key"]: each.get("tolerationSeconds") for each in body["tolerations"]}
    assert seconds == {
        "google.com/tpu": None,
        "node.kubernetes.io/not-ready": 30,
        "node.kubernetes.io/unreachable": 30,
    }


@pytest.mark.parametrize("code", sorted(exit_codes.NAMES))
def test_messages_of_failed_jobs_meet_the_rule_that_is_meant(spec: TrainingSpec, code: int) -> None:
    rules = manifest.build(spec, launch=1, holder="h")["spec"]["failurePolicy"]["rules"]
    told = f"Container trainer for pod default/lm-slice-0-1-abcde failed with exit code {code}"
    message = f"{told} matching FailJob rule at index 0"
    met = [
        rule["action"]
        for rule in rules
        if any(re.fullmatch(pattern, message) for pattern in rule["onJobFailureMessagePatterns"])
    ]
    if code in exit_codes.FATAL:
        assert met == ["FailJobSet"]
    elif code in exit_codes.BYSTANDER:
        assert met == ["RestartJobSetAndIgnoreMaxRestarts"]
    else:
        assert met == []


def test_a_disruption_does_not_eat_the_budget(spec: TrainingSpec) -> None:
    rules = manifest.build(spec, launch=1, holder="h")["spec"]["failurePolicy"]["rules"]
    message = "Pod default/lm-slice-0-1-abcde has condition DisruptionTarget matching FailJob rule at index 1"
    met = [r["action"] for r in rules if any(re.search(p, message) for p in r["onJobFailureMessagePatterns"])]
    assert met == ["RestartJobSetAndIgnoreMaxRestarts"]


def test_exit_codes_are_those_of_the_trainer() -> None:
    ours = {code for code in exit_codes.NAMES}
    assert ours == {int(code) for code in ExitCode}
    assert {ExitCode.PEER_LOST, ExitCode.STOPPED_ON_REQUEST} == set(exit_codes.BYSTANDER)


def test_the_trainer_is_told_everything(spec: TrainingSpec) -> None:
    told = environment(pod(manifest.build(spec, launch=3, holder="h"))["containers"][0])
    assert {key: value for key, value in told.items() if isinstance(value, str)} == {
        "EVERSTEP_RUN": "lm",
        "EVERSTEP_RUN_URL": "gs://everstep-tests/lm",
        "EVERSTEP_LAUNCH": "3",
        "EVERSTEP_SLICES": "2",
        "EVERSTEP_NODES_PER_SLICE": "2",
        "EVERSTEP_WORKERS_PER_NODE": "1",
        "EVERSTEP_DATA_PARALLELISM": "2",
        "EVERSTEP_CHECKPOINT_DIR": "/local",
        "EVERSTEP_LOCAL_EVERY_STEPS": "5",
        "EVERSTEP_BACKUP_EVERY_MINUTES": "30",
        "EVERSTEP_DURABLE_AT_END": "true",
        "EVERSTEP_DURABLE_EVERY_HOURS": "",
        "EVERSTEP_FINAL_STEP": "100",
        "EVERSTEP_FRAMEWORK": "orbax",
        "EVERSTEP_POD_INFO": "/etc/everstep",
        "EVERSTEP_HANDSHAKE_SECONDS": "900",
    }
    paths = {key: value["fieldRef"]["fieldPath"] for key, value in told.items() if isinstance(value, dict)}
    assert paths == {
        "EVERSTEP_RESTART_ATTEMPT": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
        "EVERSTEP_SLICE_INDEX": "metadata.labels['jobset.sigs.k8s.io/job-index']",
        "EVERSTEP_NODE_INDEX": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        "EVERSTEP_POD_NAME": "metadata.name",
        "EVERSTEP_NODE_NAME": "spec.nodeName",
    }


def test_a_script_without_the_library_gets_an_observer_and_no_exit_code_rules(
    run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    run_data["trainer"]["uses_library"] = False
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    jobset = manifest.build(spec, launch=1, holder="h")
    (observer,) = pod(jobset)["initContainers"]
    assert observer["restartPolicy"] == "Always"
    assert observer["volumeMounts"] == pod(jobset)["containers"][0]["volumeMounts"]
    assert environment(observer)["EVERSTEP_LAUNCH"] == "1"
    assert "onExitCodes" not in str(jobset)
    assert [rule["action"] for rule in jobset["spec"]["failurePolicy"]["rules"]] == [
        "RestartJobSetAndIgnoreMaxRestarts"
    ]


def test_the_fingerprint_follows_the_spec_and_not_the_launch(spec: TrainingSpec) -> None:
    one, other = (manifest.build(spec, launch=number, holder=str(number)) for number in (1, 2))
    assert one["metadata"]["annotations"][labels.SPEC_HASH] == other["metadata"]["annotations"][labels.SPEC_HASH]
    changed = spec.model_copy(update={"final_step": 101}).on(spec.cluster_spec)
    assert manifest.fingerprint(changed) != manifest.fingerprint(spec)
    kept = spec.model_copy(update={"allow_fresh_start": True}).on(spec.cluster_spec)
    assert manifest.fingerprint(kept) == manifest.fingerprint(spec)


def test_a_queue_and_spot_nodes_are_written_where_they_belong(
    run_data: dict[str, Any], cluster_data: dict[str, Any]
) -> None:
    cluster_data["queue"] = "team"
    cluster_data["pools"]["v6e-2x4"]["spot"] = True
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    jobset = manifest.build(spec, launch=1, holder="h")
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert pod(jobset)["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
