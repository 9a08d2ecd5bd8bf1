"""kubectl against the API server: the commands that people use on a training cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH"),
]

Make = Callable[..., dict[str, Any]]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def kubectl(api_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl and returns what it did; `fails=True` expects a failure."""
    environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig), "HOME": str(tmp_path_factory.mktemp("home"))}

    def run(*arguments: str, fails: bool = False, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["kubectl", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            input=None if stdin is None else yaml.safe_dump_all(stdin if isinstance(stdin, list) else [stdin]),
        )
        assert (done.returncode != 0) is fails, done.stderr + done.stdout
        return done

    return run


@pytest.fixture(scope="module")
def core(api_server: Any) -> client.CoreV1Api:
    return client.CoreV1Api(api_server.api_client())


def manifest(api_version: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, **body}


def full_jobset(make_jobset: Make, name: str) -> dict[str, Any]:
    """A JobSet as `apply` needs it for a second time: with all that the server fills into its lists."""
    body = make_jobset(name, failurePolicy={"maxRestarts": 3, "restartStrategy": "BlockingRecreate"})
    replicated = body["spec"]["replicatedJobs"][0]
    replicated["groupName"] = "default"
    replicated["template"]["spec"]["completionMode"] = "Indexed"
    return manifest("jobset.x-k8s.io/v1alpha2", "JobSet", body)


def test_a_jobsets_life_by_kubectl(kubectl: Kubectl, make_jobset: Make) -> None:
    jobset = full_jobset(make_jobset, "life")
    assert "jobset.jobset.x-k8s.io/life created" in kubectl("apply", "-f", "-", stdin=jobset).stdout
    assert "jobset.jobset.x-k8s.io/life unchanged" in kubectl("apply", "-f", "-", stdin=jobset).stdout

    jobset["metadata"]["labels"] = {"team": "a"}
    jobset["spec"]["suspend"] = True
    assert "life configured" in kubectl("apply", "-f", "-", stdin=jobset).stdout
    lines = kubectl("get", "jobset", "life", "--show-labels").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE", "LABELS"]
    assert lines[1].split()[:2] == ["life", "true"] and lines[1].endswith("team=a")

    kubectl("patch", "jobset", "life", "--type", "merge", "-p", '{"spec":{"suspend":false}}')
    found = json.loads(kubectl("get", "jobset", "life", "-o", "json").stdout)
    assert found["spec"]["suspend"] is False and found["metadata"]["generation"] == 3
    operations = '[{"op":"add","path":"/metadata/annotations/x","value":"y"}]'
    kubectl("patch", "jobset", "life", "--type", "json", "-p", operations)
    refused = kubectl("patch", "jobset", "life", "--type", "strategic", "-p", "{}", fails=True)
    assert "not supported by jobset.x-k8s.io/v1alpha2" in refused.stderr

    kubectl("label", "jobset", "life", "more=labels")
    kubectl("annotate", "jobset", "life", "x-")
    described = kubectl("describe", "jobset", "life").stdout
    assert "Restart Strategy:  BlockingRecreate" in described and "more=labels" in described

    jobset["spec"]["failurePolicy"]["maxRestarts"] = 4
    assert "Value is immutable" in kubectl("apply", "-f", "-", stdin=jobset, fails=True).stderr
    assert 'jobset.jobset.x-k8s.io "life" deleted' in kubectl("delete", "jobset", "life", "--timeout=10s").stdout
    assert "NotFound" in kubectl("get", "jobset", "life", fails=True).stderr


def test_apply_refuses_a_misspelt_field(kubectl: Kubectl, make_jobset: Make) -> None:
    jobset = full_jobset(make_jobset, "typo")
    jobset["spec"]["replicatedJobs"][0]["replica"] = 2
    refused = kubectl("apply", "-f", "-", stdin=jobset, fails=True)
    assert 'strict decoding error: unknown field "spec.replicatedJobs[0].replica"' in refused.stderr


def test_server_side_apply_of_a_jobset(kubectl: Kubectl, make_jobset: Make) -> None:
    jobset = full_jobset(make_jobset, "server-side")
    kubectl("apply", "--server-side", "-f", "-", stdin=jobset)
    jobset["metadata"]["labels"] = {"team": "a"}
    kubectl("apply", "--server-side", "-f", "-", stdin=jobset)
    del jobset["metadata"]["labels"]
    kubectl("apply", "--server-side", "-f", "-", stdin=jobset)
    found = json.loads(kubectl("get", "jobset", "server-side", "-o", "json", "--show-managed-fields").stdout)
    assert not found["metadata"].get("labels")
    assert [entry["operation"] for entry in found["metadata"]["managedFields"]] == ["Apply"]


def test_get_watch_prints_changes_as_they_come(
    kubectl: Kubectl, api_server: Any, core: client.CoreV1Api, make_pod: Make
) -> None:
    process = subprocess.Popen(
        ["kubectl", "--kubeconfig", str(api_server.kubeconfig), "get", "pods", "-l", "watched=yes", "-w"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        pod = make_pod("watched")
        pod["metadata"]["labels"] = {"watched": "yes"}
        core.create_namespaced_pod("default", pod)
        header, first = process.stdout.readline(), process.stdout.readline()
        core.patch_namespaced_pod_status("watched", "default", {"status": {"phase": "Running"}})
        second = process.stdout.readline()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert first.split()[:3] == ["watched", "0/1", "Pending"]
    assert second.split()[:3] == ["watched", "0/1", "Running"]
    kubectl("delete", "pod", "watched")


def test_nodes_are_tainted_cordoned_and_drained(kubectl: Kubectl, core: client.CoreV1Api, make_pod: Make) -> None:
    nodes = [manifest("v1", "Node", {"metadata": {"name": name, "labels": {"pool": name}}}) for name in ("n1", "n2")]
    kubectl("apply", "-f", "-", stdin=nodes)
    kubectl("taint", "node", "n1", "a=b:NoSchedule")
    kubectl("taint", "node", "n1", "c=d:NoExecute")
    kubectl("taint", "node", "n1", "a-")
    assert core.read_node("n1").spec.taints[0].key == "c"
    kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "nodes", "-l", "pool in (n1)", "-o", "wide").stdout

    # Ended: its eviction is over at once, without a kubelet.
    core.create_namespaced_pod("default", make_pod("drained", nodeName="n1"))
    core.patch_namespaced_pod_status("drained", "default", {"status": {"phase": "Succeeded"}})
    described = kubectl("describe", "node", "n1").stdout
    assert "Unschedulable:      true" in described
    assert "node/n1 drained" in kubectl("drain", "n1", "--force", "--timeout=20s").stdout
    kubectl("uncordon", "n1")
    kubectl("delete", "node", "n1", "n2")


def test_describe_shows_a_pods_events(kubectl: Kubectl, core: client.CoreV1Api, make_pod: Make) -> None:
    pod = core.create_namespaced_pod("default", make_pod("eventful"))
    core.create_namespaced_event(
        "default",
        {
            "metadata": {"name": "eventful.1"},
            "type": "Warning",
            "reason": "FailedMount",
            "message": "no driver",
            "count": 2,
            "firstTimestamp": pod.metadata.creation_timestamp,
            "lastTimestamp": pod.metadata.creation_timestamp,
            "source": {"component": "kubelet"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "eventful", "uid": pod.metadata.uid},
        },
    )
    described = kubectl("describe", "pod", "eventful").stdout
    assert "FailedMount" in described and "no driver" in described
    listed = kubectl("get", "events", "--field-selector", "involvedObject.name=eventful").stdout
    assert listed.splitlines()[1].split()[1:4] == ["Warning", "FailedMount", "pod/eventful"]
    kubectl("delete", "pod", "eventful")


def test_logs_of_a_pod(kubectl: Kubectl, api_server: Any, core: client.CoreV1Api, make_pod: Make) -> None:
    pod = core.create_namespaced_pod("default", make_pod("talking", nodeName="n1"))
    path: Path = api_server.directory / "nodes" / "n1" / "pods" / pod.metadata.uid / "logs" / "main.log"
    path.parent.mkdir(parents=True)
    path.write_text("2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout F two\n")
    core.patch_namespaced_pod_status("talking", "default", {"status": {"phase": "Succeeded"}})
    assert kubectl("logs", "talking").stdout == "one\ntwo\n"
    assert kubectl("logs", "-f", "talking", "--tail=1").stdout == "two\n"
    kubectl("delete", "pod", "talking")


def test_create_subcommands_and_questions_about_rights(kubectl: Kubectl, core: client.CoreV1Api) -> None:
    kubectl("create", "namespace", "team")
    kubectl("-n", "team", "create", "configmap", "settings", "--from-literal=a=b")
    kubectl("-n", "team", "create", "secret", "generic", "token", "--from-literal=a=b")
    kubectl("-n", "team", "create", "serviceaccount", "trainer")
    kubectl("-n", "team", "create", "job", "hello", "--image=busybox", "--", "echo", "hi")
    kubectl("create", "priorityclass", "low", "--value=-5", "--description=yields to all")
    assert core.read_namespaced_config_map("settings", "team").data == {"a": "b"}
    assert core.read_namespaced_secret("token", "team").data == {"a": "Yg=="}
    found = json.loads(kubectl("get", "priorityclass", "low", "-o", "json").stdout)
    assert (found["value"], found["description"]) == (-5, "yields to all")
    assert "job.batch/hello" in kubectl("-n", "team", "get", "all").stdout
    assert kubectl("auth", "can-i", "create", "jobsets").stdout.strip() == "yes"
    kubectl("delete", "namespace", "team", "--timeout=10s")
    kubectl("delete", "priorityclass", "low")


def test_explain_knows_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    assert "maxRestarts" in kubectl("explain", "jobset.spec.failurePolicy").stdout
    assert "Restart policy for all containers" in kubectl("explain", "pod.spec.restartPolicy").stdout
    assert "inMemoryVolumeSize" in kubectl("explain", "cpc.spec").stdout


def test_strategic_patch_and_replace_of_a_pod(kubectl: Kubectl, make_pod: Make) -> None:
    kubectl("create", "-f", "-", stdin=manifest("v1", "Pod", make_pod("patched")))
    patch = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    kubectl("patch", "pod", "patched", "-p", json.dumps(patch))
    found = json.loads(kubectl("get", "pod", "patched", "-o", "json").stdout)
    assert found["spec"]["containers"][0]["image"] == "busybox:2"
    assert found["spec"]["containers"][0]["command"] == ["sleep", "100"]
    found["metadata"]["labels"] = {"replaced": "yes"}
    kubectl("replace", "-f", "-", stdin=found)
    kubectl("delete", "pod", "-l", "replaced=yes")
