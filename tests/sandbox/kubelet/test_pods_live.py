"""Pods as real processes: environment, volumes, logs, init containers and sidecars, restarts, ends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.sandbox

Object = dict[str, Any]


def phase_is(*phases: str) -> Callable[[Object | None], bool]:
    return lambda pod: bool(pod) and (pod.get("status") or {}).get("phase") in phases


def is_ready(pod: Object | None) -> bool:
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def shell(name: str, script: str, **more: Any) -> Object:
    return {"name": name, "image": "example", "command": ["sh", "-c", script], **more}


def container_status(pod: Object, name: str, family: str = "containerStatuses") -> Object:
    return next(status for status in pod["status"][family] if status["name"] == name)


def test_environment_and_arguments(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create("configmaps", {"metadata": {"name": "settings"}, "data": {"colour": "green", "size": "4"}})
    fields = {
        "NAME": "metadata.name",
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
        "HOST": "status.hostIP",
        "TEAM": "metadata.labels['team']",
        "NOTE": "metadata.annotations['note']",
    }
    body = sandbox_pod(
        "env",
        containers=[
            {
                "name": "main",
                "image": "x",
                "command": ["python"],
                "args": [
                    "-c",
                    "import os,sys; print('|'.join([os.environ[k] for k in sys.argv[1].split(',')] + sys.argv[2:]))",
                    "NAME,NODE,IP,HOST,TEAM,NOTE,GREETING,DATA,colour,JAX_PLATFORMS",
                    "$(GREETING)",
                    "$$(NAME)",
                    "$(NOPE)",
                    "--dir=/data/x",
                    "gs://bucket/data",
                ],
                "env": [
                    *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
                    {"name": "GREETING", "value": "hello $(TEAM)"},
                    {"name": "DATA", "value": "/data:/database"},
                ],
                "envFrom": [{"configMapRef": {"name": "settings"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    body["metadata"] |= {"labels": {"team": "blue"}, "annotations": {"note": "n"}}
    namespace.create("pods", body)
    pod = namespace.wait("pods", "env", phase_is("Succeeded", "Failed"))
    words = namespace.log("env", "main").strip().split("|")
    data = words[7].partition(":")[0]
    assert words[0] == "env" and words[1] == pod["spec"]["nodeName"]
    assert words[2] == pod["status"]["podIP"] and re.fullmatch(r"127\.\d+\.\d+\.\d+", words[2])
    assert words[2] != "127.0.0.1" and words[3] == pod["status"]["hostIP"] != words[2]
    assert words[4:7] == ["blue", "n", "hello blue"]
    assert data.endswith(f"nodes/{words[1]}/pods/{pod['metadata']['uid']}/volumes/data")
    assert words[7:] == [
        f"{data}:/database",
        "green",
        "cpu",
        "hello blue",
        "$(NAME)",
        "$(NOPE)",
        f"--dir={data}/x",
        "gs://bucket/data",
    ]


def test_exit_codes_and_statuses(namespace: Any, sandbox_pod: Any) -> None:
    for name, script in (("code", "exit 7"), ("killed", "kill -9 $$$$"), ("term", "kill -TERM $$$$"), ("fine", "true")):
        namespace.create("pods", sandbox_pod(name, script))
    codes = {}
    for name in ("code", "killed", "term", "fine"):
        pod = namespace.wait("pods", name, phase_is("Succeeded", "Failed"))
        ended = container_status(pod, "main")["state"]["terminated"]
        codes[name] = (pod["status"]["phase"], ended["exitCode"], ended["reason"])
    assert codes == {
        "code": ("Failed", 7, "Error"),
        "killed": ("Failed", 137, "Error"),
        "term": ("Failed", 143, "Error"),
        "fine": ("Succeeded", 0, "Completed"),
    }


def test_command_that_does_not_exist(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create(
        "pods", sandbox_pod("nothing", containers=[{"name": "main", "image": "x", "command": ["/no/such/program"]}])
    )
    pod = namespace.wait("pods", "nothing", phase_is("Failed"))
    assert container_status(pod, "main")["state"]["terminated"]["reason"] == "StartError"


def test_logs_are_timestamped_followed_and_cut(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create("pods", sandbox_pod("talk", "echo one; echo two >&2; echo three; printf unfinished; sleep 100"))
    namespace.wait("pods", "talk", is_ready)
    deadline = time.monotonic() + 5
    while "three" not in namespace.log("talk", "main"):
        assert time.monotonic() < deadline
    lines = namespace.log("talk", "main", "&timestamps=true").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", line) for line in lines)
    assert sorted(line.split(" ", 1)[1] for line in lines) == ["one", "three", "two"]
    assert len(namespace.log("talk", "main", "&tailLines=1").splitlines()) == 1


def test_init_containers_run_in_order_and_a_failure_fails_the_pod(namespace: Any, sandbox_pod: Any) -> None:
    body = sandbox_pod(
        "order",
        initContainers=[
            shell("first", "echo first > /w/log", volumeMounts=[{"name": "w", "mountPath": "/w"}]),
            shell("second", "echo second >> /w/log", volumeMounts=[{"name": "w", "mountPath": "/w"}]),
        ],
        containers=[shell("main", "cat /w/log", volumeMounts=[{"name": "w", "mountPath": "/w"}])],
        volumes=[{"name": "w", "emptyDir": {}}],
    )
    namespace.create("pods", body)
    namespace.wait("pods", "order", phase_is("Succeeded"))
    assert namespace.log("order", "main") == "first\nsecond\n"
    namespace.create("pods", sandbox_pod("broken", "echo never", initContainers=[shell("first", "exit 3")]))
    pod = namespace.wait("pods", "broken", phase_is("Failed"))
    assert container_status(pod, "first", "initContainerStatuses")["state"]["terminated"]["exitCode"] == 3
    assert "waiting" in container_status(pod, "main")["state"]


def test_native_sidecar_starts_first_ends_last_and_does_not_count(namespace: Any, sandbox_pod: Any) -> None:
    script = 'trap "echo stopped; exit 0" TERM; echo up > /w/side; while :; do sleep 0.05; done'
    mount = [{"name": "w", "mountPath": "/w"}]
    namespace.create(
        "pods",
        sandbox_pod(
            "aside",
            initContainers=[
                shell(
                    "side",
                    script,
                    restartPolicy="Always",
                    volumeMounts=mount,
                    startupProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
                ),
            ],
            containers=[shell("main", "cat /w/side; exit 5", volumeMounts=mount)],
            volumes=[{"name": "w", "emptyDir": {}}],
        ),
    )
    pod = namespace.wait("pods", "aside", phase_is("Succeeded", "Failed"))
    assert pod["status"]["phase"] == "Failed"
    assert namespace.log("aside", "main") == "up\n"
    assert namespace.log("aside", "side") == "stopped\n"
    assert container_status(pod, "side", "initContainerStatuses")["state"]["terminated"]["exitCode"] == 0


def test_downward_annotations_are_refreshed_as_a_whole(namespace: Any, sandbox_pod: Any) -> None:
    script = "while ! grep -q save-requested /etc/info/annotations; do sleep 0.02; done; cat /etc/info/annotations"
    body = sandbox_pod(
        "asked",
        containers=[shell("main", script, volumeMounts=[{"name": "info", "mountPath": "/etc/info"}])],
        volumes=[
            {
                "name": "info",
                "downwardAPI": {"items": [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]},
            }
        ],
    )
    body["metadata"]["annotations"] = {"everstep.dev/a": 'quoted "text"'}
    namespace.create("pods", body)
    namespace.wait("pods", "asked", phase_is("Running"))
    namespace.patch("pods", "asked", {"metadata": {"annotations": {"everstep.dev/save-requested": "17"}}})
    namespace.wait("pods", "asked", phase_is("Succeeded"))
    assert namespace.log("asked", "main").splitlines() == [
        'everstep.dev/a="quoted \\"text\\""',
        'everstep.dev/save-requested="17"',
    ]


def test_grace_period_then_kill(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create(
        "pods", sandbox_pod("stubborn", 'trap "" TERM; while :; do sleep 0.1; done', terminationGracePeriodSeconds=2)
    )
    namespace.wait("pods", "stubborn", is_ready)
    began = time.monotonic()
    namespace.delete("pods", "stubborn")
    namespace.wait("pods", "stubborn", lambda pod: pod is None)
    assert 1.8 < time.monotonic() - began < 4


def test_deletion_takes_the_whole_process_tree(namespace: Any, sandbox_pod: Any) -> None:
    """Also a child that has left the container's session."""
    script = "setsid sleep 987 & sleep 987 & wait"
    namespace.create("pods", sandbox_pod("family", script))
    namespace.wait("pods", "family", is_ready)
    uid = namespace.get("pods", "family")["metadata"]["uid"]
    deadline = time.monotonic() + 5
    while len(processes_of(uid)) < 3:
        assert time.monotonic() < deadline, processes_of(uid)
    namespace.delete("pods", "family")
    namespace.wait("pods", "family", lambda pod: pod is None)
    assert processes_of(uid) == []


def test_restart_policy_always_and_back_off(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create("pods", sandbox_pod("again", "exit 1", restartPolicy="Always"))

    def backs_off(pod: Object | None) -> bool:
        statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or [{"state": {}}]
        return (statuses[0]["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff"

    pod = namespace.wait("pods", "again", backs_off)
    status = container_status(pod, "main")
    assert status["restartCount"] == 1 and status["lastState"]["terminated"]["exitCode"] == 1
    assert pod["status"]["phase"] == "Running"
    # 10 s of back-off, ten times as fast.
    namespace.wait("pods", "again", lambda pod: container_status(pod, "main")["restartCount"] == 2, seconds=5)


def test_mount_that_fails_is_told_and_tried_again(namespace: Any, sandbox_pod: Any) -> None:
    mount = [{"name": "c", "mountPath": "/c"}]
    namespace.create(
        "pods",
        sandbox_pod(
            "waits",
            containers=[shell("main", "cat /c/key", volumeMounts=mount)],
            volumes=[{"name": "c", "configMap": {"name": "late"}}],
        ),
    )
    namespace.create(
        "pods",
        sandbox_pod(
            "driverless", volumes=[{"name": "local", "csi": {"driver": "multitier-checkpoint.csi.storage.gke.io"}}]
        ),
    )
    namespace.wait_until("events", lambda events: sum(event["reason"] == "FailedMount" for event in events) >= 2)
    assert any(
        "driver name multitier-checkpoint.csi.storage.gke.io not found in the list of registered CSI drivers" in text
        for text in namespace.events("FailedMount")
    )
    namespace.create("configmaps", {"metadata": {"name": "late"}, "data": {"key": "here\n"}})
    namespace.wait("pods", "waits", phase_is("Succeeded"))
    assert namespace.log("waits", "main") == "here\n"


def test_pod_names_become_addresses(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create("pods", sandbox_pod("server", "sleep 100", hostname="set-slice-0-0", subdomain="set"))
    server = namespace.wait("pods", "server", is_ready)
    namespace.create("pods", sandbox_pod("asks", "echo set-slice-0-0.set:8476 set-slice-0-1.set"))
    namespace.wait("pods", "asks", phase_is("Succeeded"))
    assert namespace.log("asks", "main") == f"{server['status']['podIP']}:8476 set-slice-0-1.set\n"


def test_a_restarted_kubelet_reports_lost_containers(own_cluster: Any, sandbox_pod: Any) -> None:
    path = "/api/v1/namespaces/default/pods"
    own_cluster.request("POST", path, sandbox_pod("lost", "setsid sleep 1000 & sleep 1000 & wait"))
    own_cluster.request("POST", path, sandbox_pod("kept", "sleep 1000", restartPolicy="Always"))
    for name in ("lost", "kept"):
        own_cluster.wait(path, name, is_ready)
    uid = own_cluster.request("GET", f"{path}/lost")["metadata"]["uid"]
    own_cluster.kill("kubelet")
    own_cluster.start_kubelet()
    pod = own_cluster.wait(path, "lost", phase_is("Failed"))
    ended = container_status(pod, "main")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert processes_of(uid) == []
    kept = own_cluster.wait(path, "kept", lambda found: container_status(found, "main")["restartCount"] == 1)
    assert container_status(kept, "main")["lastState"]["terminated"]["exitCode"] == 137


def test_signal_for_one_pod(namespace: Any, sandbox_pod: Any) -> None:
    namespace.create("pods", sandbox_pod("target", 'trap "exit 33" USR1; while :; do sleep 0.02; done'))
    namespace.wait("pods", "target", is_ready)
    namespace.cluster.fault("kill-pod", namespace=namespace.name, pod="target", signal=10)
    pod = namespace.wait("pods", "target", phase_is("Failed"))
    assert container_status(pod, "main")["state"]["terminated"]["exitCode"] == 33


def processes_of(pod_uid: str) -> list[int]:
    """Processes that carry the kubelet's mark of this pod."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if f"|{pod_uid}|" in process.environ().get("EVERSTEP_SANDBOX_CONTAINER", ""):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
