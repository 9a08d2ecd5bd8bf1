"""A small live cluster for tests: the API with its controllers, and the kubelet of six nodes, each a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep_sandbox import nodes
from everstep_sandbox.kubernetes import kubeconfig
from everstep_sandbox.stack import furnish, sweep
from everstep_sandbox.stack.parts import PART_MARKER

Object = dict[str, Any]

SPEED = 10.0


class LiveCluster:
    """Requests go out as plain JSON; waiting is done by watches."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        nodes.save(directory / "machines.json", nodes.plan(3, 2))

    def start(self) -> None:
        self._start("kubernetes", "--directory", str(self.directory), "--speed", f"{SPEED:g}")
        self.server = f"http://127.0.0.1:{(self.directory / 'kubernetes.port').read_text()}"
        self._token = kubeconfig.read(self.directory / "kubeconfig").token
        self.start_kubelet()

    def start_kubelet(self) -> None:
        self._start(
            "kubelet",
            "--directory",
            str(self.directory),
            "--kubeconfig",
            str(self.directory / "kubeconfig"),
            "--speed",
            f"{SPEED:g}",
        )
        self.door = f"http://127.0.0.1:{(self.directory / 'kubelet.port').read_text()}"
        for machine in nodes.load(self.directory / "machines.json"):
            self.wait("/api/v1/nodes", machine.name, is_ready)

    def kill(self, part: str) -> None:
        self._processes[part].kill()
        self._processes[part].wait()

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            process.wait(10)
        assert sweep.survivors(self.directory) == []

    def fault(self, kind: str, **arguments: Any) -> Object:
        return furnish.request("POST", f"{self.door}/faults/{kind}", arguments)

    def request(self, method: str, path: str, body: Object | None = None) -> Object:
        return furnish.request(method, self.server + path, body, self._token)

    def patch(self, path: str, body: Object) -> Object:
        asked = urllib.request.Request(
            self.server + path,
            data=json.dumps(body).encode(),
            method="PATCH",
            headers=self._headers() | {"Content-Type": "application/merge-patch+json"},
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            found: Object = json.loads(answer.read())
            return found

    def items(self, path: str) -> list[Object]:
        found: list[Object] = self.request("GET", path)["items"]
        return found

    def text(self, path: str) -> str:
        asked = urllib.request.Request(self.server + path, headers=self._headers())
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return str(answer.read().decode())

    def wait(
        self, path: str, name: str, holds: Callable[[Object | None], bool], seconds: float = 20.0
    ) -> Object | None:
        """Watches one object until `holds` of it (None: it is gone); returns it as it then is."""
        return self.wait_any(path, holds, seconds, selector=f"fieldSelector=metadata.name%3D{name}")

    def wait_any(
        self, path: str, holds: Callable[[Object | None], bool], seconds: float = 20.0, selector: str = ""
    ) -> Object | None:
        """Watches a collection until `holds` of one of its objects."""
        # The watch starts after the list that it names, so that an object that is gone already is noticed.
        listing = self.request("GET", f"{path}?{selector}")
        if not listing["items"] and "metadata.name" in selector and holds(None):
            return None
        for found in listing["items"]:
            if holds(found):
                return dict(found)
        version = listing["metadata"]["resourceVersion"]
        last: Object | None = None
        deadline = time.monotonic() + seconds
        url = f"{self.server}{path}?{selector}&watch=true&resourceVersion={version}&timeoutSeconds={int(seconds) + 1}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=self._headers()), timeout=seconds) as lines:
            for line in lines:
                change = json.loads(line)
                last = None if change["type"] == "DELETED" else change["object"]
                if holds(last):
                    return last
                assert time.monotonic() < deadline, f"{path} {selector}: not within {seconds} s; last {last}"
        raise AssertionError(f"{path} {selector}: not within {seconds} s; last {last}")

    def writes(self) -> list[Object]:
        return [json.loads(line) for line in (self.directory / "writes.jsonl").read_text().splitlines()]

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _start(self, part: str, *arguments: str) -> None:
        port_file = self.directory / f"{part}.port"
        port_file.unlink(missing_ok=True)
        with (self.directory / f"{part}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"everstep_sandbox.{part}", *arguments, "--port-file", str(port_file)],
                stdout=log,
                stderr=log,
                env={**os.environ, PART_MARKER: f"{self.directory}|{part}"},
            )
        self._processes[part] = process
        deadline = time.monotonic() + 30
        while not port_file.exists():
            assert process.poll() is None, (self.directory / f"{part}.log").read_text()
            assert time.monotonic() < deadline, f"{part} does not answer"
            time.sleep(0.02)


def is_ready(obj: Object | None) -> bool:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


class Namespace:
    """What a test does in a namespace of its own."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})

    def path(self, plural: str) -> str:
        prefix = {
            "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
            "jobs": "/apis/batch/v1",
            "daemonsets": "/apis/apps/v1",
        }.get(plural, "/api/v1")
        return f"{prefix}/namespaces/{self.name}/{plural}"

    def create(self, plural: str, body: Object) -> Object:
        return self.cluster.request("POST", self.path(plural), body)

    def get(self, plural: str, name: str) -> Object:
        return self.cluster.request("GET", f"{self.path(plural)}/{name}")

    def patch(self, plural: str, name: str, body: Object) -> Object:
        return self.cluster.patch(f"{self.path(plural)}/{name}", body)

    def delete(self, plural: str, name: str, **options: Any) -> None:
        self.cluster.request("DELETE", f"{self.path(plural)}/{name}", options or None)

    def list(self, plural: str) -> list[Object]:
        return self.cluster.items(self.path(plural))

    def wait(
        self, plural: str, name: str, holds: Callable[[Object | None], bool], seconds: float = 20.0
    ) -> Object | None:
        return self.cluster.wait(self.path(plural), name, holds, seconds)

    def wait_until(self, plural: str, holds: Callable[[list[Object]], bool], seconds: float = 20.0) -> list[Object]:
        """Waits until `holds` of the whole list, looking again after every change of any of its objects."""
        found: list[Object] = []

        def all_hold(_: Object | None) -> bool:
            found[:] = self.list(plural)
            return holds(found)

        if not all_hold(None):
            self.cluster.wait_any(self.path(plural), all_hold, seconds)
        return found

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.list("events") if event["reason"] == reason]

    def log(self, pod: str, container: str, query: str = "") -> str:
        return self.cluster.text(f"{self.path('pods')}/{pod}/log?container={container}{query}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """One cluster for all tests that leave its machines alone."""
    live = LiveCluster(tmp_path_factory.mktemp("cluster"))
    try:
        live.start()
        yield live
    finally:
        live.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """A cluster for a test that breaks machines or parts."""
    live = LiveCluster(tmp_path)
    try:
        live.start()
        yield live
    finally:
        live.stop()


@pytest.fixture
def namespace(cluster: LiveCluster) -> Iterator[Namespace]:
    """A fresh namespace; what is in it ends with the test."""
    made = Namespace(cluster)
    yield made
    cluster.request("DELETE", f"/api/v1/namespaces/{made.name}", {"propagationPolicy": "Foreground"})
    cluster.request("DELETE", made.path("pods"), {"gracePeriodSeconds": 0})


@pytest.fixture
def sandbox_pod() -> Callable[..., Object]:
    """Builds pods whose containers are shell scripts."""
    return build_pod


@pytest.fixture
def sandbox_jobset() -> Callable[..., Object]:
    """Builds training-like JobSets whose pods run one shell script."""
    return build_jobset


def build_pod(name: str, script: str | None = None, **spec: Any) -> Object:
    body: Object = {"restartPolicy": "Never", **spec}
    body.setdefault("containers", [{"name": "main", "image": "example", "command": ["sh", "-c", script or ":"]}])
    body.setdefault("tolerations", [{"key": "google.com/tpu", "operator": "Exists"}])
    return {"metadata": {"name": name}, "spec": body}


def build_jobset(
    name: str,
    script: str,
    *,
    slices: int = 1,
    hosts: int = 2,
    max_restarts: int = 2,
    priority: str | None = None,
    exclusive: bool = False,
    strategy: str = "BlockingRecreate",
    tpu: str | None = None,
    **pod_spec: Any,
) -> Object:
    """With the failure policies that Everstep gives its runs."""
    container: Object = {
        "name": "trainer",
        "image": "example",
        "command": ["sh", "-c", script],
        "env": [
            {
                "name": "ATTEMPT",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}},
            }
        ],
    }
    if tpu:
        container["resources"] = {"limits": {"google.com/tpu": tpu}}
    template = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "containers": [container],
        "tolerations": [
            {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 30,
            },
        ],
        **({"priorityClassName": priority} if priority else {}),
        **pod_spec,
    }
    failed = {"onJobFailureReasons": ["PodFailurePolicy"]}
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": nodes.POOL_LABEL} if exclusive else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "failurePolicy": {
                "maxRestarts": max_restarts,
                "restartStrategy": strategy,
                "rules": [
                    {
                        "name": "user",
                        "action": "FailJobSet",
                        **failed,
                        "onJobFailureMessagePatterns": ["exit code (64|65|66|70) "],
                    },
                    {
                        "name": "world",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        **failed,
                        "onJobFailureMessagePatterns": ["DisruptionTarget", "exit code (75|76) "],
                    },
                ],
            },
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": slices,
                    "template": {
                        "spec": {
                            "parallelism": hosts,
                            "completions": hosts,
                            "backoffLimit": 0,
                            "completionMode": "Indexed",
                            "podReplacementPolicy": "Failed",
                            "podFailurePolicy": {
                                "rules": [
                                    {
                                        "action": "FailJob",
                                        "onExitCodes": {
                                            "containerName": "trainer",
                                            "operator": "In",
                                            "values": [64, 65, 66, 70, 75, 76],
                                        },
                                    },
                                    {
                                        "action": "FailJob",
                                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                                    },
                                ]
                            },
                            "template": {"spec": template},
                        }
                    },
                }
            ],
        },
    }
