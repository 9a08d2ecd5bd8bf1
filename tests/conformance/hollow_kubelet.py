"""A kubelet that runs nothing: it plays the nodes of the suite through the API, and does what a test tells it.

Its pods become Running at once. They end when a test says so, or confirm their deletion. A silent node renews no lease
and says nothing of its pods, as a host does whose power is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.conformance.api import STRATEGIC, Api, Object, Refusal, Stream, path_of
from tests.conformance.kubelet_words import ended, micro_time, ready, running

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.5
_WATCH_SECONDS = 240
_TERMINATED_BY_SIGNAL = 143


class HollowKubelet:
    """All nodes of the suite. Start it once; every method may be called from any thread."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: set[str] = set()
        self._silent: set[str] = set()
        self._held: set[str] = set()
        self._pods: dict[str, Object] = {}
        self._confirmed: set[str] = set()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._address = 0
        self._stream: Stream | None = None
        self._threads = [
            threading.Thread(target=self._follow_pods, name="hollow kubelet", daemon=True),
            threading.Thread(target=self._beat, name="heartbeats", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Removes its nodes and ends."""
        for node in list(self._nodes):
            self.remove_node(node)
        self._stopped.set()
        if self._stream is not None:
            self._stream.cut()
        for thread in self._threads:
            thread.join(5)

    # Nodes

    def add_node(self, name: str, labels: dict[str, str], resources: dict[str, str], taints: list[Object]) -> None:
        """Registers a Ready node."""
        with self._lock:
            self._nodes.add(name)
            address = f"10.254.0.{len(self._nodes)}"
        spec: Object = {"taints": taints} if taints else {}
        self._api.create(
            path_of("nodes"),
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
                "spec": spec,
            },
        )
        capacity = {"cpu": "8", "memory": "64Gi", "pods": "32", **resources}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [ready("KubeletReady", "True")],
        }
        self._api.patch(path_of("nodes", None, name, "status"), {"status": status}, STRATEGIC)
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time()},
        }
        self._api.create(path_of("leases", "kube-node-lease"), lease)
        self._api.wait(
            path_of("nodes"),
            lambda found: name in found and not _not_ready_taints(found[name]),
            fieldSelector=f"metadata.name={name}",
        )

    def remove_node(self, name: str) -> None:
        """Deletes the Node object and its lease, as a cloud does with a machine that is gone."""
        with self._lock:
            self._nodes.discard(name)
            self._silent.discard(name)
            self._held.discard(name)
        for path in (path_of("nodes", None, name), path_of("leases", "kube-node-lease", name)):
            _quietly(self._api.delete, path)

    def silence(self, node: str) -> None:
        """From now on nothing is heard of the node."""
        with self._lock:
            self._silent.add(node)

    def speak(self, node: str) -> None:
        """A silent node is heard again, and says that it is ready."""
        _quietly(
            self._api.patch,
            path_of("leases", "kube-node-lease", node),
            {"spec": {"renewTime": micro_time()}},
        )
        with self._lock:
            self._silent.discard(node)
        _quietly(
            self._api.patch,
            path_of("nodes", None, node, "status"),
            {"status": {"conditions": [ready("KubeletReady", "True")]}},
            STRATEGIC,
        )
        self._act_on_pods_of({node})

    @contextmanager
    def holding_ends(self, *nodes: str) -> Iterator[None]:
        """Within the block pods of these nodes stay Terminating, as processes that use their whole grace period."""
        with self._lock:
            self._held.update(nodes)
        try:
            yield
        finally:
            with self._lock:
                self._held.difference_update(nodes)
            self._act_on_pods_of(set(nodes))

    # Pods

    def finish(self, pod: Object, exit_code: int = 0) -> None:
        """The pod's containers end with this exit code, and so does the pod."""
        meta = pod["metadata"]
        status = ended(self._api.get(path_of("pods", meta["namespace"], meta["name"])), exit_code)
        self._report(pod, status)

    def _act_on_pods_of(self, nodes: set[str]) -> None:
        with self._lock:
            found = [pod for pod in self._pods.values() if pod["spec"].get("nodeName") in nodes]
        for pod in found:
            self._act(pod)

    def _act(self, pod: Object) -> None:
        """Does what a kubelet does on seeing this state of a pod."""
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        with self._lock:
            if node not in self._nodes or node in self._silent:
                return
            held = node in self._held
        if meta.get("deletionTimestamp"):
            if held or meta["uid"] in self._confirmed:
                return
            if meta.get("deletionGracePeriodSeconds"):
                self._confirm_deletion(pod)
        elif (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            with self._lock:
                self._address += 1
                address = f"10.253.{self._address // 250}.{self._address % 250 + 1}"
            self._report(pod, running(pod, address))

    def _confirm_deletion(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._confirmed.add(meta["uid"])
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self._report(pod, ended(pod, _TERMINATED_BY_SIGNAL))
        _quietly(
            self._api.delete,
            path_of("pods", meta["namespace"], meta["name"]),
            gracePeriodSeconds=0,
            preconditions={"uid": meta["uid"]},
        )

    def _report(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        _quietly(self._api.patch, path_of("pods", meta["namespace"], meta["name"], "status"), body, STRATEGIC)

    # Threads

    def _follow_pods(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow_once()
            except Exception as error:
                if not self._stopped.wait(0.2):
                    log.info("the watch of pods is taken up again: %r", error)

    def _follow_once(self) -> None:
        assigned = {"fieldSelector": "spec.nodeName!="}
        listing = self._api.get(path_of("pods"), **assigned)
        with self._lock:
            self._pods = {item["metadata"]["uid"]: item for item in listing["items"]}
        for pod in listing["items"]:
            self._act(pod)
        version = listing["metadata"]["resourceVersion"]
        with self._api.watch(path_of("pods"), version, _WATCH_SECONDS, **assigned) as events:
            self._stream = events
            for event in events:
                if self._stopped.is_set():
                    return
                if event["type"] == "ERROR":
                    raise Refusal(event["object"].get("code", 500), event["object"])
                pod = event["object"]
                with self._lock:
                    if event["type"] == "DELETED":
                        self._pods.pop(pod["metadata"]["uid"], None)
                    else:
                        self._pods[pod["metadata"]["uid"]] = pod
                if event["type"] != "DELETED":
                    self._act(pod)

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            with self._lock:
                heard = sorted(self._nodes - self._silent)
            for node in heard:
                body = {"spec": {"renewTime": micro_time()}}
                _quietly(self._api.patch, path_of("leases", "kube-node-lease", node), body)


def _not_ready_taints(node: Object) -> list[Object]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint["key"] == "node.kubernetes.io/not-ready"]


def _quietly(call: Any, *arguments: Any, **options: Any) -> None:
    """Refusals of what has gone or changed meanwhile are no news to a kubelet."""
    try:
        call(*arguments, **options)
    except Refusal as refusal:
        if refusal.code not in (404, 409, 410, 422):
            raise
        log.info("%s: %s", arguments[0], refusal)
